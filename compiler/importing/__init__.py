"""`xpc import`: somebody else's configuration to a spec, every key of it accounted for.

One module a source format (`trlyaml`, `command`, `deepspeed`, `llamafactory`, `axolotl`); they share the keys of
transformers and TRL (`trainer`, `switches`, `online`), of the model and its data (`model`, `corpus`) and of the launch
(`sharding`, `zero`). A key is mapped to a setting, kept under `extra`, reserved for a later version, noted as of no
effect with the reason, or an error that names its file and line. Nothing here touches files: `edge` does.
"""
