"""What is found, in which order; and the page's script finds the same as Python."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.atlas.search_index.small_site import write_small
from torchreel.atlas.search_index import query, search
from torchreel.atlas.search_index.shards import read_rows, shards_in
from torchreel.atlas.site.frame import ASSETS
from torchreel.errors import AtlasError, OptionError

SEED = 20_240_608

QUERIES = [
    *("relu", "ReLU", "RELU", "_relu_", "rel", "re", "r", "relu kernel", "relu 6", "grad scaler", "gradScalers"),
    *("fakeTensors", "fake tensor", "FakeTensor rst", "nn/functional.py", "torch.nn.functional", "functional", "fx"),
    *("grad relu", "relu nothing_like_it", "nothing", "", " ", "_", "__", "/", "größe", "GRÖSSE", "Größe", "𐐨", "𐐨y"),
    *("__proto__", "proto", "constructor", "toString", "hasOwnProperty", "valueOf", "operator<<", "</script>"),
    *(
        "img src",
        "\u2028",
        "\\",
        '"',
        "'); alert(1)//",
        "a" * 5000,
        "relu " * 40,
        "tensor torch functional linear",
        "hostile",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("site"))


def places(site: Path, words: str) -> list[tuple[str, int]]:
    return [(one["path"], one["line"]) for one in search(site, words)]


def test_definitions_come_before_docs_and_docs_before_uses(site: Path) -> None:
    assert search(site, "relu") == [
        {"path": "src/native/Relu.cpp", "line": 5, "score": 1172, "title": "RELU"},
        {"path": "torch/nn/functional.py", "line": 1760, "score": 1142, "title": "relu"},
        {"path": "torch/nn/modules/activation.py", "line": 104, "score": 1120, "title": "ReLU"},
        {"path": "torch/optim/_functional.py", "line": 12, "score": 1033, "title": "relu"},
    ]
    assert places(site, "tensors")[0] == ("docs/fake_tensor.rst", 4)
    assert places(site, "linear") == [("torch/nn/functional.py", 1760)]


def test_a_name_spelled_as_typed_comes_first(site: Path) -> None:
    titles = [one["title"] for word in ("ReLU", "relu") for one in search(site, word)[1:3]]
    assert titles == ["relu", "ReLU", "relu", "ReLU"]
    scores = {
        word: next(one["score"] for one in search(site, word) if one["title"] == "ReLU") for word in ("ReLU", "relu")
    }
    assert scores["ReLU"] > scores["relu"]


def test_whole_names_come_before_beginnings_and_beginnings_before_parts(site: Path) -> None:
    scores = [search(site, word, 1)[0]["score"] for word in ("GradScaler", "gradscale", "grads", "state")]
    assert scores == sorted(scores, reverse=True)
    assert [search(site, word, 1)[0]["title"] for word in ("gradsc", "state")] == ["GradScaler", "grad_scaler.py"]


def test_files_with_all_words_come_first(site: Path) -> None:
    assert places(site, "kernel relu")[0] == ("src/native/Relu.cpp", 5)
    scores = [one["score"] // 1000 for one in search(site, "tensor relu functional")]
    assert scores == sorted(scores, reverse=True) and scores[0] == 3 and scores[-1] == 1


def test_a_path_is_found_and_stands_for_the_file(site: Path) -> None:
    assert search(site, "nn/functional.py", 1) == [
        {"path": "torch/nn/functional.py", "line": 1, "score": 3122, "title": "functional.py"}
    ]
    assert places(site, "torch.nn.functional")[0][0] == "torch/nn/functional.py"
    assert places(site, "fx") == [("torch/fx/__init__.py", 1)]


def test_a_name_that_is_nowhere_is_taken_apart(site: Path) -> None:
    assert places(site, "fakeTensors") == [("docs/fake_tensor.rst", 4)]
    assert places(site, "GradScalers") == [("torch/amp/grad_scaler.py", 53)]


def test_no_word_of_javascript_finds_what_is_not_there(site: Path) -> None:
    assert [places(site, word) for word in ("hasOwnProperty", "valueOf", "prototype")] == [[], [], []]
    assert places(site, "__proto__") == [("src/proto/__proto__.js", 1)]
    assert places(site, "constructor") == [("src/proto/__proto__.js", 2)]


def test_the_limit_is_kept_and_must_make_sense(site: Path) -> None:
    assert search(site, "relu", 2) == search(site, "relu")[:2]
    with pytest.raises(OptionError, match="limit is 0: ask for at least one result"):
        search(site, "relu", 0)


def test_an_atlas_without_an_index_says_so(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=r"There is no search index: .*search/files\.js is missing\. Make the"):
        search(tmp_path, "relu")


@pytest.mark.parametrize("row", ["0relu zzA1", "0relu aZ1"])
def test_an_index_that_names_what_is_not_there_says_so(tmp_path: Path, row: str) -> None:
    write_small(tmp_path)
    (tmp_path / "search" / "re.js").write_text(f'torchreelAtlas.shard("re","{row}")\n')
    with pytest.raises(AtlasError, match="The search index of this atlas is damaged"):
        search(tmp_path, "relu")


_ASK = """
const fs = require("fs"), vm = require("vm");
const [script, site] = process.argv.slice(1);
const context = vm.createContext({});
const run = (path) => vm.runInContext(fs.readFileSync(path, "utf8"), context, { filename: path });
const atlas = (call) => JSON.parse(vm.runInContext(`JSON.stringify(torchreelAtlas.${call})`, context));
run(script);
run(`${site}/search/files.js`);
const loaded = new Set();
const answers = JSON.parse(fs.readFileSync(0, "utf8")).map((query) => {
  const text = JSON.stringify(query);
  for (const shard of atlas(`shardsFor(${text})`)) {
    if (!loaded.has(shard)) run(`${site}/search/${shard}.js`);
    loaded.add(shard);
  }
  return atlas(`find(${text}, 10)`).results;
});
console.log(JSON.stringify(answers));
"""


def test_the_script_of_the_page_finds_the_same(site: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("this test runs the page's script in node, which is not on the PATH")
    choices = random.Random(SEED)
    words = [word for shard in shards_in(site) for word in read_rows(site, shard)]
    pieces = [
        " ".join(choices.choice(words)[: choices.randint(1, 9)] for _ in range(count % 4)) for count in range(200)
    ]
    queries = QUERIES + pieces
    done = subprocess.run(
        [node, "-e", _ASK, str(ASSETS / "search.js"), str(site)],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_script = dict(zip(queries, json.loads(done.stdout), strict=True))
    assert by_script == {words: [asdict(one) for one in query.results(site, words, 10)] for words in queries}
    assert sum(bool(found) for found in by_script.values()) > 100
