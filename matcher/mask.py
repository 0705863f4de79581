r"""Mask secrets in text before it is stored; hides which kinds are known and how far each reaches.

Hyperscan finds where the bounded head of a secret ends (`ghp_` and twenty characters, `password=`);
`re` and a few judgements settle its exact bounds on these candidates only. So a text without a
candidate costs one scan, and any text costs time linear in its length: heads are bounded, and what
follows a head is consumed whatever the verdict.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import re
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from matcher.engine import PatternSet
from matcher.shapes import widened

Level = Literal["default", "strict"]

_Match = re.Match[bytes]
# Where to go on, and (start, end, kind) of each secret.
_Found = tuple[int, list[tuple[int, int, str]]]


class _Span(NamedTuple):
    """Bytes to replace; of spans that overlap, the earlier start, then the lower rank, names it."""

    start: int
    rank: int
    end: int
    kind: str


class _Rule(NamedTuple):
    """One kind of secret.

    `head` is what Hyperscan looks for. `locate` finds the same (or more before it) within a `reach`
    of bytes before the end of a head; several reaches are tried in turn, the cheap one first.
    `find` settles the bounds of the secrets from there.
    """

    kind: str
    head: str
    locate: str
    find: Callable[[bytes, _Match], _Found]
    reaches: tuple[int, ...]


@functools.cache
def _pattern(text: str) -> re.Pattern[bytes]:
    """Compiled for the first candidate: all rules together take longer than a small file."""
    return re.compile(text.encode())


class Masker:
    """Replaces secrets by `<masked:kind>`; one instance serves one thread.

    Level `default` covers keys, tokens, passwords, private keys and e-mail addresses; `strict` also
    long random strings (names of machines and users: see matcher.pseudonyms). Raises ValueError
    for any other level.
    """

    def __init__(self, level: Level = "default", cache: Path | None = None) -> None:
        if level not in _LEVELS:
            raise ValueError(f"mask level {level!r} is not known: use default or strict")
        self._rules = _LEVELS[level]
        self._set = PatternSet(
            [rule.head for rule in self._rules],
            names=[("mask", f"{rule.kind} {rule.head}") for rule in self._rules],
            cache=cache,
        )
        self._wide = PatternSet([widened(rule.head) for rule in self._rules], cache=cache)

    def spares(self, shape: bytes) -> bool:
        """Whether no text of this shape (see matcher.shapes) has anything to be masked."""
        return not self._wide.found(shape)

    def mask(self, text: bytes) -> tuple[bytes, int]:
        """The text with its secrets replaced, and how many places were.

        The text may hold several LF-separated lines; their number stays. The lines of a private key
        are masked, and counted, one by one; its short last line is known only where the text holds
        the key from its BEGIN on. A text without a secret is returned itself. Masking a masked text
        changes nothing.
        """
        total = 0
        # A replaced secret can bare its neighbour to another rule, so run until nothing is found.
        for number in itertools.count(1):
            ids, ends = self._set.ends(text)
            spans = self._spans(text, ids, ends) if ids else []
            if not spans:
                break
            if number == _MAX_PASSES:
                spans = _whole_lines(text, spans)
            text = _replace(text, spans)
            total += len(spans)
        return text, total

    def _spans(self, text: bytes, ids: list[int], ends: list[int]) -> list[_Span]:
        """Disjoint spans of secrets, in order."""
        resume = [0] * len(self._rules)
        found: list[_Span] = []
        for number, end in zip(ids, ends, strict=True):
            if end <= resume[number]:
                continue
            rule = self._rules[number]
            for reach in rule.reaches:
                begin = max(resume[number], end - reach)
                if head := _pattern(rule.locate).search(text, begin, end):
                    resume[number], secrets = rule.find(text, head)
                    found += [_Span(start, number, stop, kind) for start, stop, kind in secrets]
                    break
        found.sort()
        spans: list[_Span] = []
        for span in found:
            last = spans[-1] if spans else None
            if last is None or span.start >= last.end:
                spans.append(span)
            # `user:p@ss@host.org` is a password: an address that begins in it ends too late.
            elif span.end > last.end and span.kind != "email":
                spans[-1] = last._replace(end=span.end)
        return spans


# Lines settle in one pass or two; one nested to need more is hostile and goes whole.
_MAX_PASSES = 8


def _whole_lines(text: bytes, spans: Sequence[_Span]) -> list[_Span]:
    lines: list[_Span] = []
    for span in spans:
        if not lines or span.start > lines[-1].end:
            start = text.rfind(b"\n", 0, span.start) + 1
            stop = text.find(b"\n", span.end)
            lines.append(_Span(start, span.rank, len(text) if stop < 0 else stop, "line"))
    return lines


def _replace(text: bytes, spans: Sequence[_Span]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for span in spans:
        parts += (text[at : span.start], b"<masked:%s>" % span.kind.encode())
        at = span.end
    parts.append(text[at:])
    return b"".join(parts)


# --- what is a secret by its own form ------------------------------------------------------------

_ANSI = r"(?:\x1b|\\{1,4}(?:u001[bB]|x1[bB]|033|e))\[[0-9;]{0,16}[mK]"
# Before a token stands no letter or digit, but for those that end an escape: \n, %3D, ESC[1m.
_EDGE = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbfv])|(?<=[0-9\[]m)"
    r"|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
)


def _rule(
    kind: str,
    head: str,
    exact: str,
    *,
    keep: Callable[[_Match], bool] = bool,
    locate: str = "",
    reach: int = 80,
) -> _Rule:
    """A rule whose secret is group `s` of `exact`, matched where the head begins.

    `exact` may match without `s`, to consume what need not be looked at again.
    """

    def find(text: bytes, found: _Match) -> _Found:
        match = _pattern(exact).match(text, found.start())
        if match is None:
            return found.end(), []
        if match.start("s") < 0 or not keep(match):
            return match.end(), []
        return match.end(), [(*match.span("s"), kind)]

    return _Rule(kind, head, locate or head, find, (reach,))


def _token(kind: str, head: str, rest: str, *, edge: bool = False) -> _Rule:
    """A token with a telling prefix; `edge` where the prefix may also end an ordinary word."""
    return _rule(kind, head, f"{_EDGE if edge else ''}(?P<s>(?:{head}){rest})")


def _is_random(value: bytes) -> bool:
    """Made by a machine rather than written: letters with digits, or too long for a word."""
    if len(value) < 6 or re.search(rb"\s", value):
        return False
    if re.search(rb"[A-Za-z]", value) and re.search(rb"[0-9]", value):
        return True
    return len(value) >= (16 if re.search(rb"[a-z].*[A-Z]", value) else 20)


_RUNS = re.compile(rb"[a-z]+|[A-Z]+|[0-9]+")


def _is_scrambled(value: bytes) -> bool:
    """Whether digits and both cases alternate as in base64 (at 64 % of steps; paths at 25 %)."""
    kinds = all(re.search(kind, value) for kind in (rb"[a-z]", rb"[A-Z]", rb"[0-9]"))
    return kinds and len(_RUNS.findall(value)) >= 0.4 * len(value)


def _is_key_line(match: _Match) -> bool:
    # 64 columns is PEM, 70 OpenSSH, 76 MIME and `base64`.
    return len(match["s"].rstrip(b"=")) in (64, 70, 76) and _is_scrambled(match["s"])


_UUID = re.compile(rb"(?:[A-Z]+-){0,2}[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_blob(match: _Match) -> bool:
    value: bytes = match["s"]
    if _UUID.fullmatch(value):
        return False
    if re.fullmatch(rb"[0-9A-Fa-f]+", value):
        return bool(re.search(rb"[0-9]", value)) and len(set(value.lower())) >= 8
    return _is_scrambled(value)


# What looks like name@host.suffix and is none: units, files, key exchange names, fixed users.
_NO_ADDRESS = re.compile(
    rb"(?i)git@|.*@(?:openssh\.com|libssh\.org)$"
    rb"|.*\.(?:service|socket|slice|mount|scope|target|timer|device|path|swap|automount"
    rb"|pyc?|so|cc|cpp|cuh?|hpp|json|ya?ml|toml|txt|log|png|jpg|pt|bin|gz|zip|html)$"
)


def _is_address(match: _Match) -> bool:
    return not _NO_ADDRESS.match(match["s"])


def _is_login(match: _Match) -> bool:
    """Whether `-u name:word` belongs to a client of the web, not to a container's uid:gid."""
    before = match.string[max(0, match.start() - 200) : match.start()]
    return bool(re.search(rb"curl|wget|http", before)) and not match["s"].isdigit()


_AT = r"[^\s/@]@[A-Za-z0-9\[_]"
_URL_USER = r"""[^\s/:@"'<>\\]{0,100}"""
_LOGIN_P = r"(?i)(?:sshpass|(?:docker|podman|nerdctl|skopeo) login)[^\r\n]{0,160}"

_FORMS = (
    _rule(
        "hf-token",
        r"(?:hf|api_org)_[A-Za-z0-9]{20}",
        r"(?P<s>(?:hf|api_org)_[A-Za-z0-9]{20,})",
        # Shorter ones without a digit are names: hf_AutoModelForCausalLM.
        keep=lambda match: len(match["s"]) >= 29 or re.search(rb"[0-9]", match["s"]) is not None,
    ),
    _token("anthropic-key", r"sk-ant-[A-Za-z0-9_-]{16}", r"[A-Za-z0-9_-]*"),
    _token(
        "openai-key",
        r"sk-(?:(?:proj|svcacct|admin|None|or|lf|test|live)-[A-Za-z0-9_-]{16}|[A-Za-z0-9]{20})",
        r"[A-Za-z0-9_-]*",
        edge=True,
    ),
    _token("wandb-key", r"wandb_v1_[A-Za-z0-9_]{16}", r"[A-Za-z0-9_]*"),
    _rule(
        "wandb-key",
        r"(?i)wandb[ .]login",
        r"(?i)wandb[ .]login[^\r\n]{1,160}?(?<![0-9A-Za-z])(?P<s>[0-9a-f]{40})(?![0-9a-f])",
    ),
    _token(
        "github-token",
        r"gh[pousr]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9_]{20}",
        r"[A-Za-z0-9_]*",
    ),
    _token(
        "gitlab-token",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|oas|agent)-[A-Za-z0-9_-]{16}",
        r"[A-Za-z0-9_.-]*",
    ),
    _rule(
        "aws-key-id",
        r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}",
        rf"{_EDGE}(?P<s>A(?:KI|SI|BI|CC)A[A-Z0-9]{{16}})(?![A-Za-z0-9])",
    ),
    _token(
        "gcp-key",
        r"(?:AIza[A-Za-z0-9_-]{30}|ya29\.[A-Za-z0-9_-]{20}|GOCSPX-[A-Za-z0-9_-]{20})",
        r"[A-Za-z0-9_.-]*",
    ),
    _token(
        "slack-token",
        r"(?:xox[abceoprs]-|xapp-)[A-Za-z0-9-]{10}",
        r"[A-Za-z0-9-]*",
        edge=True,
    ),
    _rule(
        "webhook",
        r"(?:hooks\.slack\.com\\?/(?:services|workflows|triggers)"
        r"|discord(?:app)?\.com\\?/api\\?/webhooks|webhook\.office\.com\\?/webhookb2)\\?/",
        r"[a-z.]{1,24}(?:\\?/(?:api|webhooks|webhookb2|services|workflows|triggers)){1,2}\\?/"
        r"(?P<s>(?:[A-Za-z0-9_@-]|\\?/){8,400})",
    ),
    _rule(
        "signature",
        r"(?i)(?:\b|[0-9])sig(?:nature)?(?:=|%3d)[a-z0-9%+/_-]{20}",
        r"(?i)[0-9]?sig(?:nature)?(?:=|%3d)(?P<s>[a-z0-9%+/=_-]{20,})",
    ),
    _rule(
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8}",
        rf"{_EDGE}(?:(?P<s>eyJ[\w-]+\.(?:eyJ[\w-]+(?:\.[\w-]*)?|[\w-]*(?:\.[\w-]+){{1,3}}))"
        r"|eyJ[\w-]+)",
    ),
    _token("npm-token", r"npm_[A-Za-z0-9]{30}", r"[A-Za-z0-9]*"),
    _token("pypi-token", r"pypi-(?:Ag[A-Za-z0-9_-]{16}|[A-Za-z0-9_-]{40})", r"[A-Za-z0-9_-]*"),
    _token("docker-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16}", r"[A-Za-z0-9_-]*"),
    _token("nvidia-key", r"nvapi-[A-Za-z0-9_-]{20}", r"[A-Za-z0-9_-]*"),
    _token("databricks-token", r"dapi[0-9a-f]{32}", r"(?:-[0-9])?", edge=True),
    _token(
        "service-key",
        r"(?:gsk_[A-Za-z0-9]{32}|r8_[A-Za-z0-9]{32}|[sr]k_(?:live|test)_[A-Za-z0-9]{16}"
        r"|dop_v1_[0-9a-f]{32}|hvs\.[A-Za-z0-9_-]{20}|rpa_[A-Z0-9]{30}"
        r"|SG\.[A-Za-z0-9_-]{16}|AGE-SECRET-KEY-1[A-Z0-9]{20})",
        r"[A-Za-z0-9_.-]*",
        edge=True,
    ),
    _rule(
        "authorization",
        r"""(?i)bearer[ ]{1,2}["'\\]{0,3}[A-Za-z0-9._~+/-]{12}""",
        r"""(?i)bearer[ ]{1,2}["'\\]{0,3}(?P<s>[A-Za-z0-9._~+/-]{12,}={0,2})""",
        keep=lambda match: _is_random(match["s"]),
    ),
    _rule(
        "cookie",
        r"""(?i)cookie\\{0,7}["']?:[ ]\\{0,7}["']?[\w.-]{1,64}=""",
        r"""(?i)cookie\\{0,7}["']?:[ ]\\{0,7}["']?(?P<s>[\w.-]{1,64}=[^\r\n"'\\<>]{4,})""",
        reach=120,
    ),
    _rule(
        "url-password",
        _AT,
        rf"""://{_URL_USER}:(?P<s>[^\s/"'<>\\]{{1,256}})@(?!sha256:)""",
        locate=rf"""://{_URL_USER}:[^\s/"'<>\\]{{1,256}}@""",
        reach=380,
    ),
    _rule(
        "url-password",
        r"://[A-Za-z0-9_-]{20}",
        r"://(?P<s>[A-Za-z0-9_-]{20,})(?::[^\s/@]{0,256})?@",
        keep=lambda match: re.search(rb"[0-9]", match["s"]) is not None,
    ),
    _rule(
        "secret",
        r"(?i)(?:password|api[ _-]?key|secret_access_key)[ \t]{1,4}[0-9A-Za-z/+]{40}",
        r"(?i)[a-z][a-z _-]{4,16}[ \t]{1,4}(?P<s>[0-9A-Za-z/+]{40})(?![\w/+-])",
        keep=lambda match: not match["s"].startswith(b"/"),
    ),
    _rule(
        "password",
        r"machine[ \t]{1,4}\S{1,80}[ \t]{1,4}login[ \t]{1,4}\S{1,80}[ \t]{1,4}password[ \t]",
        r"machine[^\r\n]{1,180}?password[ \t]{1,4}(?P<s>[^\s<\"'\\]+)",
        reach=220,
    ),
    _rule(
        "password",
        _LOGIN_P + " -p",
        rf"""{_LOGIN_P}? -p[ =]?["']?(?P<s>[^\s"'\\<$-][^\s"'\\]*)""",
        reach=190,
    ),
    _rule(
        "password",
        r"""[ '"](?:-u|--user)[ =,'"]{1,4}[^\s:'"]{1,64}:""",
        r"""[ '"](?:-u|--user)[ =,'"]{1,4}[^\s:'"]{1,64}:(?P<s>[^\s"'\\<$]+)""",
        keep=_is_login,
    ),
    _rule(
        "key-line",
        r"[A-Za-z0-9+/]{64}",
        r"(?<![A-Za-z0-9+/=])(?P<s>[A-Za-z0-9+/]{64,}={0,2})(?![\w+/=.-])|[A-Za-z0-9+/]{64,}",
        keep=_is_key_line,
    ),
)

# --- private keys: the marker, and the lines that follow it in the same text ---------------------

_KEY_BODY = re.compile(
    rb"""(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9+/]{2,}={1,2})(?=[\s"'\\]|\Z)"""
)
_KEY_REST = re.compile(rb"""[^"'\\\r\n]*(?:\\{1,8}[nrt/][^"'\\\r\n]*)*""")
# Between marker and key stand at most two headers and an empty line; more means there is no key.
_KEY_GAP = 4


def _private_key(text: bytes, head: _Match) -> _Found:
    """The rest of the marker's line up to a quote; if that has no END, words of lines below too."""
    rest = _KEY_REST.match(text, head.end())
    assert rest
    spans = [(head.start(), rest.end(), "private-key")]
    at = text.find(b"\n", rest.end()) + 1
    gap = _KEY_GAP if b"-----END" in rest[0] else 0
    while at and at < len(text) and gap < _KEY_GAP:
        stop = text.find(b"\n", at)
        stop = len(text) if stop < 0 else stop
        if text.find(b"-----", at, stop) >= 0:
            break
        words = [
            (*word.span(), "private-key")
            for word in _KEY_BODY.finditer(text, at, stop)
            if re.search(rb"[0-9+/=]", word[0])
        ]
        spans += words
        gap = 0 if words else gap + 1
        at = stop + 1
    return max(rest.end(), at), spans


# --- what is a secret by the name before it: password=..., "api_key": "...", --token ... ---------

_KEYS = {
    "password": r"pass(?:word|wd|phrase|code)|pwd|requirepass"
    r"|(?:db|user|admin|root|smtp|ftp|http|proxy|redis|mysql|pg|mongo|mail|ssh|ldap)[_-]?pass",
    "secret": r"secret(?:[ _.-]?access)?(?:[ _.-]?key)?",
    "api-key": r"(?:api|access)[ _.-]?key"
    r"|(?:account|private|encryption|signing|storage|auth|master|subscription)[_.-]?key",
    "authorization": r"authorization",
    "token": r"token|jwt",
    "credential": r"credentials?|auth",
}
_KEY = "|".join(_KEYS.values())
_KIND_OF = tuple((kind, re.compile(f"(?i)(?:{key})".encode())) for kind, key in _KEYS.items())
# The maker of the key says more than its name does.
_MAKERS = ((b"wandb", "wandb-key"), (b"aws", "aws-secret"), (b"account", "azure-key"))

_GAP = rf"""(?:\\{{0,7}}["'`]|[ \t\]]|{_ANSI}){{0,6}}"""
_ASSIGN = rf"(?i)(?P<key>{_KEY}){_GAP}(?P<sep>[=:,>]|%3d|\\u003d|[ .]\.\.\.)"
# How containers list their environment: {"name": "HF_TOKEN", "value": "..."}.
_LISTED = rf"""(?i)(?P<key>{_KEY})(?P<sep>{_GAP},?{_GAP}value{_GAP}:)"""
_FLAG = rf"(?i)(?:-[\w.-]{{0,40}}|env[ ]\w{{0,40}})(?P<key>{_KEY})(?P<sep>[ \t])"

_NAME = f"{string.ascii_letters}{string.digits}_.-".encode()
_BEFORE = re.compile(
    rb"""(?:(?P<word>[A-Za-z]+)[ ]|(?P<mark>[<(:])[ ]?)?(?:b?(?P<esc>\\{0,7})(?P<quote>["']))?\Z"""
)
_LEAD = re.compile(
    rf"(?:[ \t=>]|\.{{2,}}|{_ANSI}){{0,40}}"
    r"""(?:[bBrRuUfF]{0,2}(?P<esc>\\{0,7})(?P<quote>["'`]))?""".encode()
)
# A signed scheme has several fields, all to be masked.
_SCHEME = re.compile(
    rb"(?i)(?:bearer|basic|token|apikey|negotiate|(?P<signed>digest|aws4\S+))[ +]+"
)
# Where an unquoted value ends. A closing mark inside a word belongs to the password.
_STOP = re.compile(
    rb"""[\s&\x1b\x00]|\\{1,8}["'\\nrtu]|<(?=/)"""
    rb"""|[,;)}\]>"'`](?=[\s,;:)}\]>"'`\\]|\Z|[\w.-]{1,40}[=:])"""
)
_ANGLE = re.compile(rb"<[^<>/\r\n][^<>\r\n]{0,80}>")
_LINE_END = re.compile(rb"[\r\n]")
_LAST = re.compile(
    rb"""[ \t,;)}\].]*(?:\Z|["'\r\n#]|\\{1,8}["'nr])|[ \t]*[}\]]|[,;][ \t]*[\w.-]{1,40}[=:]"""
)

# Stands where a secret would and says nothing: placeholders, variables, words for none, code.
_HARMLESS = re.compile(
    rb"(?is)(?:<masked:[a-z0-9-]+>)+|<[^<>]*>|\[[a-z_ ]{1,20}\]|[*x.\-_?#\xe2\x80\xa2]+"
    rb"|\$(?:\w+|[{(].*)|%\(?\w+\)?s?|\{+[a-z_. ]*\}*|[\[({](?:[\"'{\[(].*)?"
    rb"|none|null|nil|true|false|yes|no|on|off|0|1|unset|undefined|empty|required|optional"
    rb"|missing|redacted|hidden|masked|filtered|default|auto|str|string|int|bool|bytes"
    rb"|(?:optional|union|self|cls|args|kwargs|config|cfg|conf|os|opts?|options|settings|env"
    rb"|environ|params|request|getpass|getattr|input|len|type|secretstr|get_\w+)[.(\[].*"
)
_NUMBER = re.compile(
    rb"(?i)[+-]?(?:0x[0-9a-f]{1,16}|[0-9][0-9.,_]*(?:e[+-]?[0-9]+|/[0-9.,]+)?"
    rb"(?:[a-z%\xc2\xb5]{1,3}(?:/[a-z]{1,6})?)?)[.,;)]*"
)
_PATH = re.compile(rb"(?s)(?:~|\.{0,2}/|file:).*")
_WORD = re.compile(rb"[A-Za-z]+(?:['-][A-Za-z]+)*[.,!?:;]*")
_PROSE = frozenset(
    b"a an and argument as at authentication by can cannot changed check denied expected expired "
    b"failed file flag for from has have if in incorrect instead invalid is it must not of or "
    b"option please prompt provided set should the this to wrong was will with you your".split()
)
# Tokens that a language model deals in.
_TEXT_TOKENS = frozenset(
    b"pad eos bos unk sep cls mask image img video audio speech special decoded next prev previous "
    b"last first per sub stop start end begin prompt output input sampled bonus draft target "
    b"trigger placeholder think reasoning tool text vocab each bad current generated eot eom eoi "
    b"boi fim system time invalid unexpected".split()
)
_LOGIN_TOKENS = tuple(
    b"auth access api bearer refresh id hf hub huggingface github gitlab gh slack session security "
    b"personal private vault ci job deploy bot oauth login wandb service account registry jupyter "
    b"notebook app admin push read write secret identity npm pypi csrf xsrf".split()
)
# A longer value is taken for a secret unseen, so that none is looked at again and again.
_LONGEST_HARMLESS = 256


class _Named(NamedTuple):
    """A value and how it stands in the text."""

    kind: str  # of the key, or `credential` or `signed` after a scheme
    key: bytes  # `token`
    name: bytes  # `hf_token`, lower case
    segment: bytes  # what the key belongs to: `hf`
    value: bytes
    flag: bool
    prose: bool  # after a colon or a blank, unquoted: may be a sentence
    last: bool  # nothing but closing marks, or another key, behind it


@functools.lru_cache
def _closing(quote: bytes, escapes: int) -> re.Pattern[bytes]:
    """The end of a value that opened with this many backslashes and this quote, or of the line."""
    # Inside a value a quote has more backslashes than around it; an even number is a value's own,
    # before its end, or another writer's escape, in the midst of it.
    own = rb"(?:\\\\){1,3}%b(?=[\s,;:)}\]]|\Z)|%b" % (quote, quote)
    around = rb"\\{0,%d}%b" % (escapes, quote)
    return re.compile(rb"(?<!\\)(?:%b)|[\r\n]" % (around if escapes else own))


def _assigned(text: bytes, head: _Match) -> _Found:
    """The value of a key that names a secret, if it is one."""
    resume, begin = head.end(), head.start("key")
    key, sep = head["key"], head["sep"]
    kind = next(kind for kind, known in _KIND_OF if known.fullmatch(key))
    left = text[max(0, begin - 80) : begin]
    stem = left.rstrip(_NAME)
    prefix = left[len(stem) :].lower()
    before = _BEFORE.search(stem[-20:])
    assert before
    quoted = before["quote"]
    key_quoted = re.search(rb"[\"'`]", text[head.end("key") : head.start("sep")])
    flag = prefix.startswith(b"-") or sep.isspace()
    segment = re.split(rb"[_.-]", prefix.rstrip(b"_.-"))[-1] or (before["word"] or b"").lower()
    if (
        (kind == "token" and segment in _TEXT_TOKENS)
        or (sep == b"," and not (quoted and (flag or before["mark"] == b"(")))
        or (sep == b">" and before["mark"] != b"<")
        or stem.endswith(b"://")
    ):
        return resume, []

    lead = _LEAD.match(text, resume)
    assert lead
    start = lead.end()
    scheme = _SCHEME.match(text, start) if kind == "authorization" else None
    signed = scheme is not None and scheme["signed"] is not None
    if scheme:
        start = scheme.end()
    if lead["quote"]:
        stop = _first(_closing(lead["quote"], len(lead["esc"])), text, start)
    else:
        angle = _ANGLE.match(text, start)
        if angle and angle[0].startswith(b"<masked:"):
            return resume, []
        stop = _first(_LINE_END if signed else _STOP, text, angle.end() if angle else start)
    named = _Named(
        kind="signed" if signed else "credential" if scheme else kind,
        key=key,
        name=prefix.lstrip(b"-") + key.lower(),
        segment=segment,
        value=text[start:stop],
        flag=flag,
        prose=not (lead["quote"] or key_quoted or scheme) and sep in (b":", b" ", b"\t"),
        last=_LAST.match(text, stop) is not None,
    )
    if stop - start <= _LONGEST_HARMLESS and not _is_secret(named):
        return resume, []
    if quoted and sep == b"=" and not lead["quote"] and before["mark"] != b":":
        # `set -x` puts the quotes around the whole word: 'PASSWORD=two words'.
        stop = max(stop, _first(_closing(quoted, len(before["esc"])), text, start))
    kind = next((maker for part, maker in _MAKERS if part in named.name), kind)
    return stop, [(start, stop, kind)]


def _first(pattern: re.Pattern[bytes], text: bytes, start: int) -> int:
    """Where the pattern first matches from `start` on, else the end of the text."""
    found = pattern.search(text, start)
    return found.start() if found else len(text)


def _is_secret(named: _Named) -> bool:
    kind, value = named.kind, named.value
    if (
        _HARMLESS.fullmatch(value)
        or value.lower() in (named.key.lower(), named.name)
        or not re.search(rb"[A-Za-z0-9]", value)
    ):
        return False
    if kind == "signed":
        return True
    word = _WORD.fullmatch(value)
    loose = named.prose or named.flag
    if loose and word and value.lower().rstrip(b".,!?:;") in _PROSE:
        return False
    if named.flag and value.startswith(b"--"):
        return False
    if _PATH.match(value) and (kind != "password" or b"pwd" in named.name):
        return _is_scrambled(value)
    if kind == "password":
        return named.last if named.prose and not named.flag and word else True
    if _NUMBER.fullmatch(value):
        return False
    if kind == "credential":
        return _is_credential(value)
    if kind == "token":
        strong = (
            named.flag
            or named.segment.endswith(_LOGIN_TOKENS)
            or (named.key.isupper() and not named.prose)
        )
    else:
        strong = kind != "authorization"
    if strong and (named.flag or not named.prose):
        return len(value) >= 4
    return _is_random(value) or (strong and named.last and len(value) >= 8)


def _is_credential(value: bytes) -> bool:
    """Random, or `user:password` in base64, which may be letters only."""
    if _is_random(value):
        return True
    try:
        return b":" in base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return False


_NAMED = (
    _Rule("assignment", _ASSIGN, _ASSIGN, _assigned, (24, 240)),
    _Rule("listed", _LISTED, _LISTED, _assigned, (500,)),
    _Rule("flag", _FLAG, _FLAG, _assigned, (80,)),
)
_KEY_HEAD = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
_ADDRESS_DOMAIN = r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
_DEFAULT = (
    _Rule("private-key", _KEY_HEAD, _KEY_HEAD, _private_key, (80,)),
    *_FORMS,
    *_NAMED,
    _rule(
        "email",
        _AT,
        rf"(?<!\$)(?P<s>[A-Za-z0-9._%+-]{{1,64}}@{_ADDRESS_DOMAIN})(?![A-Za-z0-9_])",
        keep=_is_address,
        locate=r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9]",
    ),
)
_STRICT = (
    _rule(
        "random",
        r"[A-Za-z0-9+/_=-]{32}",
        r"(?<![A-Za-z0-9+/_=-])(?P<s>[A-Za-z0-9+/_-]{32,}={0,2})|[A-Za-z0-9+/_=-]{32,}",
        keep=_is_blob,
    ),
)
_LEVELS: dict[str, tuple[_Rule, ...]] = {"default": _DEFAULT, "strict": _DEFAULT + _STRICT}
