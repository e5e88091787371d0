"""Documents for tests."""

from collections.abc import Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import docx as word

DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def docx(*paragraphs: str, heading: str = "", rows: Sequence[Sequence[str]] = ()) -> bytes:
    """Return a DOCX file with a heading, paragraphs and a table."""
    document = word.Document()
    if heading:
        document.add_heading(heading, level=2)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if rows:
        table = document.add_table(rows=0, cols=len(rows[0]))
        for row in rows:
            for cell, text in zip(table.add_row().cells, row, strict=True):
                cell.text = text
    buffer = BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def repacked(data: bytes, **replaced: bytes) -> bytes:
    """Return a DOCX file with other parts: `word/document.xml` is named `document`, others by their paths."""
    parts = {("word/document.xml" if name == "document" else name): part for name, part in replaced.items()}
    buffer = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(buffer, "w", ZIP_DEFLATED) as new:
        for name in dict.fromkeys([*old.namelist(), *parts]):
            new.writestr(name, parts[name] if name in parts else old.read(name))
    return buffer.getvalue()


def pdf(pages: Sequence[str]) -> bytes:
    """Return a PDF with one line of text per page."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    written, places = "%PDF-1.4\n", []
    for number, item in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{item}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size, start = len(objects) + 1, len(written)
    written += f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    written += f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return written.encode("latin-1")
