"""Code blocks of the documents: their language, their content, and which file each is."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN = re.compile(r"^plugin = Plugin\(\s*\"(\w+)\"", re.MULTILINE)
FILE = re.compile(r"`([\w/]+\.(?:py|json))`")


@dataclass(frozen=True)
class Block:
    """A code block of a document: its language, its content, and the paragraph before it."""

    doc: Path
    kind: str
    body: str
    before: str

    @property
    def file(self) -> str:
        """The file name: from the plugin's name, else the last one in the text before the block."""
        plugin = PLUGIN.search(self.body)
        return f"{plugin[1]}.py" if plugin else self.named_file

    @property
    def named_file(self) -> str:
        """The last file that the text before the block names."""
        named = FILE.findall(self.before)
        return named[-1] if named else ""


def find_blocks(doc: Path) -> Iterator[Block]:
    """Yield the code blocks of a document, in order."""
    text, end = doc.read_text(encoding="utf-8"), 0
    for blocks in BLOCK.finditer(text):
        before = text[end : blocks.start()].rstrip().rpartition("\n\n")[2]
        yield Block(doc, blocks["kind"], blocks["body"], before)
        end = blocks.end()


def write_blocks(folder: Path, blocks: Sequence[Block]) -> None:
    """Write blocks as the files that they are."""
    for block in blocks:
        assert block.file, f"{block.doc.name}: say before it which file this is:\n{block.body[:200]}"
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body, encoding="utf-8")
