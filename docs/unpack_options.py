"""A griffe extension: show the keys of a ``TypedDict`` as parameters of a function with ``**options: Unpack[…]``."""

from typing import Any

from griffe import Extension, Function, Parameter, ParameterKind, Parameters


class UnpackOptions(Extension):
    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        """Replace ``**options`` by the keys, also by inherited ones."""
        shown: list[Parameter] = []
        for parameter in func.parameters:
            name = str(parameter.annotation)
            if not name.startswith("Unpack["):
                shown.append(parameter)
                continue
            keys = func.modules_collection[func.module.resolve(name[len("Unpack[") : -1])].all_members.values()
            kind = ParameterKind.keyword_only
            shown += [Parameter(key.name, annotation=key.annotation, kind=kind, default="None") for key in keys]
        func.parameters = Parameters(*shown)
