"""Nothing that tacit reads may execute: every place of the source that could run what it is given.

Each is here with its reason. A new one fails this test until somebody has written down why it does
not run what lies in a file that was sent.
"""

from __future__ import annotations

import ast
from pathlib import Path

import tacit

SOURCE = Path(tacit.__file__).parent
MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "runpy",
    "ctypes",
}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "import_module", "spec_from_file_location",
    "exec_module", "load", "loads", "read_pickle", "loadmat", "system", "popen", "Popen",
    "check_output", "check_call",
}  # fmt: skip
HARMLESS = {  # of these names, but readers that run nothing
    "json.loads", "tomllib.loads", "Votes.load", "sets.load", "data.load", "results.load",
}  # fmt: skip
WORKERS = "between processes of one program, started by it; nothing of it is ever in a file"
REFUSED = "only to see that sessions and noise refuse to be pickled"
NAMES = "of a table in the source: no name from a file is imported"
ALLOWED = {
    ("_pickles.py", "import pickle"): "PickledModels, which a call must name",
    ("_pickles.py", "pickle.loads"): "PickledModels, which a call must name",
    ("data/cifar.py", "import pickle"): "a reader of arrays, numbers and texts only, and only of "
    "files whose checksum is the published one",
    ("data/cifar.py", "_Restricted(io.BytesIO(data), encoding='bytes').load"): "as above",
    ("data/images.py", "loadmat"): "MATLAB files hold arrays; SciPy runs nothing of them",
    ("training/checkpoint_file.py", "load"): "safetensors.torch.load: tensors only",
    ("auditing/replay/forbidden/order.py", "import pickle"): REFUSED,
    ("auditing/replay/forbidden/own_model.py", "import pickle"): REFUSED,
    ("auditing/replay/forbidden/arguments.py", "import pickle"): REFUSED,
    (
        "training/dependencies.py",
        "import ctypes",
    ): "names of its types: nothing is loaded or called",
    ("training/kernels.py", "tl.load"): "Triton's: reads memory of the device",
    ("training/clipping/kernels.py", "tl.load"): "Triton's: reads memory of the device",
    ("training/clipping/convolution_kernels.py", "tl.load"): "Triton's: reads memory of the device",
    ("randomness/kernels.py", "tl.load"): "as above",
    ("_workers.py", "import pickle"): WORKERS,
    ("_workers.py", "pickle.loads"): WORKERS,
    ("cli/user_code.py", "spec_from_file_location"): "--model FILE.py: code that the user names",
    ("cli/user_code.py", "spec.loader.exec_module"): "--model FILE.py: code that the user names",
    ("cli/program.py", "import_module"): NAMES,
    ("_lazy.py", "import_module"): NAMES,
    ("accounting/accountants/__init__.py", "import_module"): NAMES,
    ("recipes/auditing/experiment.py", "import_module"): NAMES,
    ("recipes/catalogue.py", "import_module"): NAMES,
    ("recipes/transferring/method.py", "import_module"): NAMES,
}


def found(path: Path, source: Path = SOURCE) -> set[tuple[str, str]]:
    """Imports of what can execute, and calls of functions that may."""
    name = path.relative_to(source).as_posix()
    here = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {one.partition(".")[0] for one in modules} & MODULES
            here |= {(name, f"import {one}") for one in tops}
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            risky = called in BUILTINS or called.rpartition(".")[2] in CALLS
            if risky and called not in HARMLESS:
                here.add((name, called))
            if any(one.arg == "allow_pickle" and ast.unparse(one.value) != "False"
                   for one in node.keywords):  # fmt: skip
                here.add((name, f"{called}(allow_pickle)"))
            if any(one.arg == "trust_remote_code" for one in node.keywords):
                here.add((name, f"{called}(trust_remote_code)"))
    return here


def test_every_place_that_could_execute_is_known() -> None:
    places = set().union(*(found(path) for path in SOURCE.rglob("*.py")))
    unknown = {one for one in places if one not in ALLOWED and not is_data(one)}
    assert unknown == set()
    assert {one for one in ALLOWED if one not in places} == set()  # and none is a leftover


def is_data(place: tuple[str, str]) -> bool:
    """``load`` by its own name is ``tacit.data.load``, but where a checkpoint is read."""
    name, called = place
    return called == "load" and name != "training/checkpoint_file.py"


def test_the_search_finds_what_it_should(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import pickle as p, torch\nfrom marshal import loads\n"
        "torch.load('x')\nnp.load('x', allow_pickle=True)\neval('1')\n__import__(n)\n"
        "json.loads('1')\nf(trust_remote_code=True)\n"
    )
    assert {called for _, called in found(tmp_path / "a.py", tmp_path)} == {
        "import pickle", "import marshal", "torch.load", "np.load", "np.load(allow_pickle)",
        "eval", "__import__", "f(trust_remote_code)",
    }  # fmt: skip
