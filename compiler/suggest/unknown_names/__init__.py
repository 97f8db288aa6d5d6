"""the name contains the choice: `sdpa attention` becomes `attn=sdpa`"""
