"""The client's script, with NVFlare's Client API."""

import nvflare.client as flare
import torch
from task import build, own

from tunefree.optim import LocalSteps

flare.init()
place = int(flare.get_site_name().removeprefix("site-")) - 1
loader = torch.utils.data.DataLoader(own(place), batch_size=4, shuffle=True)
model = build()
while flare.is_running():
    received = flare.receive()
    model.load_state_dict(received.params)
    optimizer = LocalSteps(model.named_parameters(), received.meta["polarfl"], len(loader))
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    flare.send(flare.FLModel(params=optimizer.upload()))
