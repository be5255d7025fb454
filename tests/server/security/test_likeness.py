"""Nobody gets a token, or registers, under a name that a person takes for another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh.errors import Conflict, InvalidEnvelope, InvalidSettings, MeshError, Unauthorized
from relaymesh.kernel.address import agent_address
from relaymesh.sdk.mesh import Mesh
from relaymesh.server.security.likeness import RESERVED_NAMES, is_reserved, likeness
from relaymesh.server.security.principal import Principal
from relaymesh.server.security.tokens import TokenFile
from tests.cli.running import Cli
from tests.server.serving import serving

ALIKE = {
    "case": "Coder",
    "fullwidth": "ｃｏｄｅｒ",
    "cyrillic": "сoder",
    "greek": "cοder",
    "mathematical": "𝐜𝐨𝐝𝐞𝐫",
    "accent": "códer",
    "digit": "c0der",
    "trailing dot": "coder.",
    "trailing dash": "coder-",
    "roman numeral": "coⅾer",
}
REFUSED_BY_THE_ADDRESS = {"zero width": "co\u200bder", "combining": "co\u0301der", "bidi": "co\u202eder"}


@pytest.mark.parametrize("name", ALIKE.values(), ids=ALIKE)
def test_a_name_that_looks_like_another_tokens_is_refused(tmp_path: Path, name: str) -> None:
    file = TokenFile(tmp_path)
    file.create(["agent:coder"])
    with pytest.raises(Conflict, match="looks like 'coder'"):
        file.create([f"agent:{name}"])
    assert len(file.read()) == 1
    file.create(["agent:coder"])  # the same agent may have several
    file.create([f"agent:{name}"], namespace="other")  # and other namespaces have names of their own


def test_a_revoked_token_holds_its_name_no_longer(tmp_path: Path) -> None:
    file = TokenFile(tmp_path)
    token, _ = file.create(["agent:coder"])
    file.revoke(token.id)
    file.create(["agent:Coder"])


def test_two_names_of_one_token_must_not_look_alike_either(tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        TokenFile(tmp_path).create(["agent:coder", "agent:Coder"])


@pytest.mark.parametrize("name", ALIKE.values(), ids=ALIKE)
def test_a_name_that_looks_like_an_agents_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    empty = Cli(tmp_path / "mesh", capsys)
    with Mesh(empty.path) as mesh:
        mesh.agent("coder")
    ran = empty.json("token", "create", "--agent", name)
    assert ran.error["code"] == "CONFLICT"
    assert empty("token", "create", "--agent", "coder").code == 0


@pytest.mark.parametrize("name", REFUSED_BY_THE_ADDRESS.values(), ids=REFUSED_BY_THE_ADDRESS)
def test_a_name_with_an_invisible_character_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidEnvelope):
        agent_address(name)
    with pytest.raises(MeshError):
        TokenFile(tmp_path).create([f"agent:{name}"])


@pytest.mark.parametrize(
    "name", ["mesh", "Mesh", "MESH", "ｍｅｓｈ", "mеsh", "mesh.", "Sуstem", "relaymesh_", "rеlaymesh"]
)
def test_a_name_that_looks_reserved_is_refused(tmp_path: Path, name: str) -> None:
    assert is_reserved(name)
    with pytest.raises(InvalidSettings, match="reserved"):
        TokenFile(tmp_path).create([f"agent:{name}"])
    writer = Principal("t", "", "default", frozenset({"write"}))
    with pytest.raises(Unauthorized, match="reserved"):
        writer.sender(name)
    admin = Principal("t", "", "default", frozenset({"admin"}))
    assert admin.sender(name) == f"default/{name}"


def test_names_that_look_different_stay_different() -> None:
    names = [
        "coder",
        "coder-2",
        "coder2",
        "code",
        "meshed",
        "my-mesh",
        "разработчик",
        "müller",
        "开发者",
        "a.b",
        "a-b",
    ]
    assert len({likeness(name) for name in names}) == len(names)
    assert not any(is_reserved(name) for name in names)
    assert {likeness(name) for name in RESERVED_NAMES} == RESERVED_NAMES


async def test_an_agent_that_looks_like_a_registered_one_cannot_join(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        assert (await api.admin.post("/v1/agents", json={"name": "coder"})).status_code == 200
        for name in ("Coder", "ｃｏｄｅｒ", "coder."):
            answer = await api.admin.post("/v1/agents", json={"name": name})
            assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT"), name
        assert (await api.admin.post("/v1/agents", json={"name": "coder"})).status_code == 200
        red = api.client(["admin"], "red")
        assert (await red.post("/v1/agents", json={"name": "Coder"})).status_code == 200
