"""Whether a character's own templates can be used."""

from bot.characters.findings import Findings
from bot.characters.scanner import Node
from bot.errors import TemplateError
from bot.prompts.template_parser import compile_template


def check_templates(root: Node, findings: Findings) -> None:
    """Compile each template: one that cannot be is a problem, a tag that means nothing here a warning."""
    templates = root.value.get("templates") if isinstance(root.value, dict) else None
    if templates is None or not isinstance(templates.value, dict):
        return
    for name, node in templates.value.items():
        if not isinstance(node.value, str):
            continue
        path = ("templates", name)
        try:
            unknown = compile_template(node.value).unknown
        except TemplateError as error:
            findings.problem(node.at, path, str(error))
            continue
        for tag in unknown:
            findings.warn(node.at, path, f"{{{{{tag[:60]}}}}} means nothing here and is left out")
