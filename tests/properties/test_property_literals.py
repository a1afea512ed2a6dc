"""Secrets that stand in a text: they are masked in each form of a source line, and what is none of them stays."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inductor_bench.literals import MASK, mask_literals
from inductor_bench.store.files import mask_file

SECRETS = st.text(string.ascii_letters + string.digits + "+/=_-.", min_size=10, max_size=60).filter(
    lambda text: any(map(str.isdigit, text)) and any(map(str.isalpha, text)) and text[0].isalnum() and "-" in text[1:]
)
"""Values that have nothing of a service: their names alone tell that they are secrets."""

NAMES = (
    "api_key",
    "apiKey",
    "HF_TOKEN",
    "token",
    "wandb_key",
    "password",
    "self.client_secret",
    "aws_secret_access_key",
)
FORMS = (
    "{name} = {quoted}",
    "{name}={quoted}, device='cuda'",
    "{name}: str = {quoted}  # a comment",
    "client = Client({name}={quoted}, retries=3)",
    "client = Client(x, {name}=b{quoted})",
    "if {name} == {quoted}:",
    "options = {{'lr': 1e-3, '{name}': {quoted}}}",
    'options = {{"{name}" : {quoted}, "lr": 1e-3}}',
    "os.environ['{name}'] = {quoted}",
    'os.environ.setdefault("{name}", {quoted})',
    'parser.add_argument("--{name}", type=str, default={quoted})',
    "{name} = ({quoted} 'and more')",
    '{name} = "" + {quoted}',
    "  {name} = \\\n    {quoted}",
    'subprocess.run(["train", "--{name}", {quoted}])',
    "requests.get(url + '?{name}={value}&page=1')",
    'os.system("train --{name} {value} --steps 3")',
)
HEADERS = (
    'headers={{"Authorization": "Bearer {value}"}}',
    "headers={{'Authorization': f'token {value}'}}",
    'headers.add("Authorization", "Bearer {value}")',
    "curl -H 'Authorization: Bearer {value}' https://example.com",
)
LETTERS = string.ascii_letters + string.digits


def shaped(prefix: str, length: int, letters: str = LETTERS) -> st.SearchStrategy[str]:
    return st.text(letters, min_size=length, max_size=length).map(lambda rest: prefix + rest)


KEYS = st.one_of(
    shaped("sk-proj-", 40),
    shaped("sk-ant-api03-", 40),
    shaped("sk-", 48),
    shaped("ghp_", 36),
    shaped("github_pat_", 40),
    shaped("hf_A1", 32),
    shaped("AKIA", 16, string.ascii_uppercase + string.digits),
    shaped("xoxb-", 24),
    shaped("AIza", 35),
    shaped("glpat-", 20),
)
"""Keys of services, which tell by themselves what they are."""


@pytest.mark.parametrize("form", FORMS)
@given(name=st.sampled_from(NAMES), value=SECRETS, quote=st.sampled_from("\"'"))
def test_a_secret_beside_its_name_is_masked(form: str, name: str, value: str, quote: str) -> None:
    line = form.format(name=name, value=value, quoted=quote + value + quote)
    masked = mask_literals(line)
    assert value not in masked and MASK in masked
    assert mask_literals(masked) == masked, "a second pass changes nothing"
    assert mask_literals(f"a\n{line}\nb") == f"a\n{masked}\nb"
    if "\n" not in line:
        assert value not in mask_literals(json.dumps({"line": line})), "a line within JSON within a text"


@given(name=st.sampled_from(("api_key", "HF_TOKEN", "password")), value=SECRETS)
def test_a_secret_without_quotes_is_masked(name: str, value: str) -> None:
    assert mask_literals(f"ValueError: {name}={value} is refused") == f"ValueError: {name}={MASK} is refused"
    assert mask_literals(f"{name}: {value}\n") == f"{name}: {MASK}\n"


@pytest.mark.parametrize("form", HEADERS)
@given(value=SECRETS)
def test_a_header_is_masked(form: str, value: str) -> None:
    masked = mask_literals(form.format(value=value))
    assert value not in masked and mask_literals(masked) == masked


@given(
    key=KEYS,
    before=st.sampled_from(("", "x = '", "client(", "said: ", "(", '{"a": "', "a long text\n" * 10_000)),
    after=st.text(" ,.)'\"", max_size=2),
)
def test_the_key_of_a_service_is_masked_without_a_name(key: str, before: str, after: str) -> None:
    assert mask_literals(before + key + after) == before + MASK + after


@given(value=SECRETS.filter(lambda text: "/" not in text))
def test_passwords_in_addresses_are_masked(value: str) -> None:
    assert mask_literals(f"connect('db://me:{value}@host/x')") == f"connect('db://me:{MASK}@host/x')"


@given(digest=st.text("0123456789abcdef", min_size=32, max_size=64), blob=SECRETS.filter(lambda text: text[2] != "-"))
def test_what_only_looks_random_stays(digest: str, blob: str) -> None:
    """The hash of a kernel has as much entropy as a key."""
    lines = (
        f"kernel_hash='{digest}', backend_hash = '{digest}'",
        f"cache_key = '{digest}'",
        f"# kernel path: /tmp/torchinductor/{digest[:2]}/c{digest}.py",
        f"'c{digest}': [1, 2]",
        f"x = load('a{digest}')",
        "fused = triton_poi_fused_add_mul_" + str(len(blob)),
    )
    for line in lines:
        assert mask_literals(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "attention(query=q, key=k, value=v)",
        "key = self.key(hidden_states)",
        'target_modules=["query", "key", "value"]',
        'torch.einsum("bhqd,bhkd->bhqk", query, key)',
        "token = tokenizer.decode(ids[0])",
        'pad_token="<pad>", eos_token = "</s>", max_tokens="12", key="self"',
        "triton_meta={'signature': {'in_ptr0': '*fp32', 'xnumel': 'i32'}, 'device': 0}",
        "sorted(rows, key=lambda row: row['name'])",
        "params['layers.0.key.weight'] = 'layers.0.attn.key_12'",
        "password = getpass.getpass()",
        "def login(token: str | None = None, password: str = ''):",
        "the key of the cache and the token of the model",
        "%key : [num_users=1] = call_function[target=torch.ops.aten.view](args = (%p, [1]))",
        "monkey = 'abc12345-x'; turkey: str = 'abc12345-x'; tokenizer = 'gpt2-xl-12'",
    ],
)
def test_ordinary_lines_stay(line: str) -> None:
    assert mask_literals(line) == line


@given(
    text=st.text(st.sampled_from("key token=:\"'\\,()[]{}sk-\n api_AKIA://@&#34;?x1Bearer Authorization"), max_size=80)
)
def test_any_text_can_be_masked_again(text: str) -> None:
    masked = mask_literals(text)
    again = mask_literals(masked)
    assert mask_literals(again) == again and masked.count("\n") == text.count("\n")


def test_a_page_keeps_the_names_of_its_own() -> None:
    text = '<td data-key="abc-12345">sk-' + 30 * "a1" + "</td>"
    assert mask_file("report.html", text) == f'<td data-key="abc-12345">{MASK}</td>'
    assert mask_file("forward.py", 'x = f(api_key="abc")') == f'x = f(api_key="{MASK}")'
