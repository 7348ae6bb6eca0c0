"""Training by several processes of ``torch.distributed``: one lot, one sum, one noise, one charge.

`world` knows the processes and what they say to each other, `agreement` what must be the same for
all of them, `shares` who releases which entries, and `sharded` the parameters that FSDP2 holds in
pieces.
"""
