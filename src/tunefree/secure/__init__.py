"""Secure sums: the server sees the sum of its clients' uploads and no single one, even if it lies.

After Bonawitz et al., Practical Secure Aggregation (2017), in the form for active adversaries. The
numbers below are in the docstrings and comments of the code. |x| is the number of x, H is SHA-256,
t(n) is floor(2n/3) + 1, a *turn* is (run, round, attempt). Assumed: fewer than a third of the
clients of a cohort collude with the server. A node signs every answer with its key in the roster;
whatever it refuses changes nothing on its disk.

 1  Roster     A file names the federation, and per client its Ed25519 key. Every node has it; its
               operators compare the fingerprint. H(roster) is in all that follows.
 2  Prekeys    A client i makes one-time pairs of X25519 keys, one for sealing (c_i) and one for
               masking (s_i), and signs them with H(roster), run and number. The private keys are on
               its disk before the public ones leave it.
 3  Invite     The server sends the turn, the scale's terms and one prekey of each of n clients.
               Each node checks: the roster; n and its own minimum; every signature; that its own
               key is unused and its peers' numbers are new; that the turn is later than its last,
               and not in a round whose sum it has helped to open. H(cohort) is H of these bytes.
 4  Graph      i's group is all n clients; above 151 it is i and 150 neighbours, by H(cohort).
 5  Shares     i draws b_i, records the turn, and takes its prekey away for good; H(b_i) goes to the
               server. Each member of its group, m clients, gets one of m Shamir shares over
               GF(2^521 - 1), of which t(m) are needed, of b_i and one of s_i,
               sealed with ChaCha20-Poly1305 under HKDF(X25519(c_i, c_j), turn, H(roster),
               H(cohort), i, j), with (turn, i, j) as associated data.
 6  Deliver    The server names the sharers U (|U| >= t(n)) and passes on i's shares of its group.
               A node opens all of them, or refuses.
 7  Upload     i records "uploaded", with H(down) of what the server sent it to work on, and
               deletes b_i, c_i, s_i; then it sends, modulo 2^32,
                   round(scale x_i) + PRG(b_i) + sum over j in its group and in U of +-PRG(k_ij),
               + if i < j. PRG is AES-256-CTR and k_ij = HKDF(X25519(s_i, s_j), turn, H(roster),
               H(cohort), H(down), U, i, j). Who has other bytes has other masks: they never cancel.
 8  Scale      2^31 / ((N + 12 z) bound), for at most N clients, coordinates of at most `bound`, and
               noise of standard deviation z bound; nothing to configure, and no wrap-around. Where
               a method has no bound, each client works before 5, tells with its shares an e with
               |x_i| < 2^e, and all upload x_i / 2^e with the largest e, which counts to H(down).
 9  Survivors  The server lists the clients V in U whose uploads it has. A node that is one of them
               signs (turn, H(roster), H(cohort), H(down), U, V), if |V| >= t(n) and its minimum:
               one V only, recorded before it answers.
10  Open       With t(n) valid signatures of what it signed, a node records "opened" and gives its
               shares of b_j for j in V, and of s_j for j in U but not in V. Never both of one j.
11  Sum        The server rebuilds b_j and s_j, checks them against H(b_j) and the prekey, and takes
               the masks away. If too few answer in 5, 7, 9 or 10, the round is repeated with the
               next attempt and new prekeys.
"""
