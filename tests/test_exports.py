# SPDX-License-Identifier: Apache-2.0
"""Exports: every kind of release, in the formats of catalogues, checked with the tools of those projects.

``mlcroissant``, ``rdflib`` and ``pyshacl`` are not installed for tests. Where they are, they read the same files;
everywhere else the fields are compared with lists of what these formats know.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.builders import CASES
from tests.commands import fine, run
from tests.refusals import refusal

import dunnage as dn
from dunnage.auditing.run import Audit
from dunnage.errors import ParameterError, PolicyError, Refusal
from dunnage.model.guarantees import KAnonymity
from dunnage.showing.exports import draft_about, exported

OLD = Path(__file__).parent / "fixtures" / "v0.1.0"
ABOUT = """
title = "Trips of Example, week 47"
description = "How many people travel from where to where: \\"noisy\\" counts."
intended_use = "Planning of shuttles"
region = "Example, a town"
url = "https://data.example.org/trips 47/"
licence = "https://creativecommons.org/licenses/by/4.0/"
authors = ["Ann Example", "Bo Example"]
[publisher]
name = "Transport of Example"
kind = "government"
homepage = "https://example.org/"
email = "data@example.org"
[mobility]
theme = "public-transport-scheduled-transport"
country = "DEU"
frequency = "WEEKLY"
[assessment]
purposes = ["planning"]
legal_basis = "public task"
recipients = ["planners", "everyone"]
retention = "rows for a year, the release for ever"
necessity = "Fleets cannot be planned without it."
""".replace("trips 47", "trips-47")
NAMES = sorted(path.parent.name for path in OLD.glob("*/certificate.json"))
NEW = {"size-profile", "gaussian-counts", "fitted-counts", "utility-clusters"}
MADE = {case.name: case for case in CASES if case.name in NEW}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a release of 0.1.0, or of one that is made now."""

    @cache
    def folder(name: str) -> Path:
        if (OLD / name).exists():
            return OLD / name
        place = tmp_path_factory.mktemp("made") / name
        place.mkdir()
        MADE[name].release().write_files(place)
        return place

    return folder


@pytest.fixture
def about(tmp_path: Path) -> Path:
    path = tmp_path / "about.toml"
    path.write_text(ABOUT)
    return path


# What the registry knows: fields, and words where it takes only these
TEXT, NUMBER, CURATORS = "text", "number", {"Government", "Industry", "Nonprofit"}
REGISTRY: dict[str, Any] = {
    "url_slug": TEXT,
    "deployment": {
        "basic": {
            "name": TEXT,
            "data_curators": [
                {"data_curator_name": TEXT, "data_curator_type": {"Government", "Industry", "Nonprofit"}}
            ],
            "description": TEXT,
            "intended_use": TEXT,
            "data_product_type": {"Summary statistics", "Dataset", "Synthetic data", "Machine learning model"},
            "data_product_region": TEXT,
            "publication_date": TEXT,
        },
        "dp_variant": {
            "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        },
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": NUMBER, "delta": NUMBER, "rho": NUMBER},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": {"Local", "Central", "Shuffle", "Federated"},
            "model_name_details": TEXT,
            "trust_assumptions": TEXT,
            "release_type": {"One release", "Many releases"},
            "release_type_details": TEXT,
            "data_source_type": {"Static", "Dynamic"},
            "access_type": {"Interactive", "Non-interactive"},
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "composition": TEXT,
            "post_processing": TEXT,
            "justification": TEXT,
            "additional_information": TEXT,
        },
        "administrative": {"status": {"Draft"}, "registry_authors": [TEXT], "tier": NUMBER},
    },
}


def check_fields(value: Any, known: Any) -> None:
    if isinstance(known, dict):
        assert value.keys() <= known.keys()
        for name in value:
            check_fields(value[name], known[name])
    elif isinstance(known, list):
        assert value
        for item in value:
            check_fields(item, known[0])
    elif isinstance(known, set):
        assert value in known
    elif known == TEXT:
        assert isinstance(value, str)
        assert value.strip()
    else:
        assert isinstance(value, int | float)


def read_yaml(text: str) -> Any:
    """Read the YAML that we write: tables, lists, quoted texts and blocks; slow and strict, a second implementation."""
    lines = text.splitlines()

    def block(at: int, indent: int) -> tuple[Any, int]:
        if lines[at].lstrip().startswith("- "):
            items = []
            while at < len(lines) and lines[at].startswith(" " * indent + "- "):
                rest = lines[at][indent + 2 :]
                if rest.startswith('"'):
                    items.append(json.loads(rest))
                    at += 1
                else:
                    lines[at] = " " * (indent + 2) + rest
                    item, at = block(at, indent + 2)
                    items.append(item)
            return items, at
        table: dict[str, Any] = {}
        while at < len(lines) and lines[at].startswith(" " * indent) and lines[at][indent] != " ":
            name, _, rest = lines[at][indent:].partition(":")
            at += 1
            if rest == " |-":
                texts = []
                while at < len(lines) and lines[at].startswith(" " * (indent + 2)):
                    texts.append(lines[at][indent + 2 :])
                    at += 1
                table[name] = "\n".join(texts)
            elif rest:
                table[name] = json.loads(rest)
            else:
                table[name], at = block(at, len(lines[at]) - len(lines[at].lstrip()))
        return table, at

    return block(0, 0)[0]


@pytest.mark.parametrize("name", [*NAMES, *sorted(NEW - set(NAMES))])
def test_every_release_in_every_format(name, about, folder_of, tmp_path):
    release = dn.Release.read(folder_of(name))
    certificate = release.certificate
    if isinstance(certificate.guarantee, KAnonymity):
        assert "k-anonymity" in str(refusal(Refusal, exported, release, "registry", about)) or name == "seeded"
    elif name == "noisy-clusters-published":
        assert "only claimed" in str(refusal(Refusal, exported, release, "registry", about))
    else:
        text = exported(release, "registry", about)
        entry = read_yaml(text)
        check_fields(entry, REGISTRY)
        loss = entry["deployment"]["privacy_loss"]["privacy_parameters"]
        assert loss["epsilon"] == pytest.approx(float(str(certificate.guarantee.to_dict()["epsilon"])))
        local = entry["deployment"]["deployment_model"]["model_name"] == "Local"
        assert local is (certificate.kind == "estimates")
        if importlib.util.find_spec("yaml") is not None:
            import yaml

            assert yaml.safe_load(text) == entry
    croissant = json.loads(exported(release, "croissant", about))
    assert {item["@id"]: item["sha256"] for item in croissant["distribution"]} == certificate.files
    for records in croissant["recordSet"]:
        names = [field["name"] for field in records["field"]]
        assert names == release.as_text(records["name"], slice(0, 0)).column_names
    read_by_mlcroissant(croissant, release, folder_of(name), tmp_path)
    catalogue = json.loads(exported(release, "dcat", about))
    check_dcat(catalogue)
    shacl(json.dumps(catalogue))
    page = exported(release, "assessment", about)
    assert "not measured" in page
    assert "public task" in page
    assert certificate.digest in page


def read_by_mlcroissant(croissant: Mapping[str, Any], release: dn.Release, folder: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("mlcroissant") is None:
        return
    import mlcroissant as mlc

    (tmp_path / "croissant.json").write_text(json.dumps(croissant))
    mapping = {f"{table}.csv": folder / f"{table}.csv" for table in release.tables}
    dataset = mlc.Dataset(str(tmp_path / "croissant.json"), mapping=mapping)
    assert not dataset.metadata.issues.errors
    assert not dataset.metadata.issues.warnings
    for table in release.tables:
        assert len(list(dataset.records(table))) == release.tables[table].num_rows


def check_dcat(catalogue: Mapping[str, Any]) -> None:
    """Check what mobilityDCAT-AP 1.1 calls mandatory."""
    mandatory = {
        "dcat:Catalog": "dct:title dct:description foaf:homepage dct:spatial dcat:record dcat:dataset dct:publisher",
        "dcat:CatalogRecord": "foaf:primaryTopic dct:language dct:created dct:modified",
        "dcat:Dataset": "dct:title dct:description dcat:distribution dct:accrualPeriodicity "
        "mobilitydcatap:mobilityTheme dct:spatial dct:publisher",
        "dcat:Distribution": "dcat:accessURL mobilitydcatap:mobilityDataStandard dct:format dct:rights",
        "dct:RightsStatement": "dct:type",
        "vcard:Kind": "vcard:hasEmail vcard:fn",
    }
    seen = set()
    for node in nodes(catalogue):
        kind = node.get("@type")
        seen.add(kind)
        assert set(mandatory.get(kind, "").split()) <= node.keys(), kind
    assert mandatory.keys() <= seen


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(part)


SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix m: <https://w3id.org/mobilitydcat-ap#> .
[] a sh:NodeShape ; sh:targetClass dcat:Catalog ;
  sh:property [ sh:path foaf:homepage ; sh:minCount 1 ; sh:maxCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:title ; sh:minCount 1 ; sh:languageIn ("en") ; sh:uniqueLang true ] ,
    [ sh:path dcat:dataset ; sh:minCount 1 ; sh:class dcat:Dataset ] , [ sh:path dct:spatial ; sh:minCount 1 ] ,
    [ sh:path dcat:record ; sh:minCount 1 ; sh:class dcat:CatalogRecord ] .
[] a sh:NodeShape ; sh:targetClass dcat:CatalogRecord ;
  sh:property [ sh:path dct:created ; sh:minCount 1 ; sh:maxCount 1 ; sh:datatype xsd:date ] ,
    [ sh:path foaf:primaryTopic ; sh:minCount 1 ; sh:class dcat:Dataset ] .
[] a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dcat:distribution ; sh:minCount 1 ; sh:class dcat:Distribution ] ,
    [ sh:path m:mobilityTheme ; sh:minCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:accrualPeriodicity ; sh:minCount 1 ; sh:maxCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:publisher ; sh:minCount 1 ; sh:maxCount 1 ; sh:class foaf:Agent ] ,
    [ sh:path dct:spatial ; sh:minCount 1 ; sh:class dct:Location ] .
[] a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:maxCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:format ; sh:minCount 1 ; sh:maxCount 1 ; sh:nodeKind sh:IRI ] ,
    [ sh:path dct:rights ; sh:minCount 1 ; sh:maxCount 1 ; sh:class dct:RightsStatement ] ,
    [ sh:path m:mobilityDataStandard ; sh:minCount 1 ; sh:maxCount 1 ; sh:class m:MobilityDataStandard ] .
"""


def shacl(text: str) -> None:
    if importlib.util.find_spec("pyshacl") is None:
        return
    import pyshacl
    import rdflib

    graph = rdflib.Graph().parse(data=text, format="json-ld")
    shapes = rdflib.Graph().parse(data=SHAPES, format="turtle")
    conforms, _, words = pyshacl.validate(graph, shacl_graph=shapes)
    assert conforms, words


# The command, and what people leave blank


def test_the_command_drafts_and_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    release = str(OLD / "noisy-counts")
    fine("export", release, "--draft", "about.toml")
    blanks = run("export", release, "--to", "croissant", "-o", "c.json")
    blanks.refused("blank")
    for name in ("title", "url", "publisher.email"):
        assert (f"{name}: is blank" in blanks.err) is (name != "title")
    assert "mobility" not in blanks.err, "only what this export needs"
    run("export", release, "--draft", "about.toml").refused("exists")
    (tmp_path / "about.toml").write_text(ABOUT)
    for to, file in (("croissant", "c.json"), ("dcat", "d.jsonld"), ("registry", "r.yaml"), ("assessment", "a.html")):
        assert fine("export", release, "--to", to, "-o", file) == {"file": file, "to": to, "private": False}
        run("export", release, "--to", to, "-o", file).refused("exists")
    run("export", release, "--to", "csv", "-o", "x").refused("registry")
    run("export", release, "-o", "x").refused("--to")
    run("export", "about.toml", "--to", "dcat", "-o", "x").refused("release")
    run("export", str(OLD / "partition"), "--to", "registry", "-o", "x", "--about", "gone.toml").refused("k-anonymity")
    for old, new, place in (
        ("https://example.org/", "example", "publisher.homepage"),
        ("data@example.org", "nobody", "publisher.email"),
        ('kind = "government"', 'kind = "club"', "publisher.kind"),
        ("title", "titel", "titel"),
        ("[mobility]", "[mobil]", "mobil"),
    ):
        (tmp_path / "about.toml").write_text(ABOUT.replace(old, new, 1))
        run("export", release, "--to", "dcat", "-o", "x").refused(place)
    assert not (tmp_path / "x").exists()
    assert 'title = "trips"' in draft_about(dn.Release.read(release))


def test_an_assessment_states_risks_and_limits(tmp_path: Path, about: Path) -> None:
    audit = Audit.read(OLD / "audit")
    release = next(one for name in NAMES if (one := dn.Release.read(OLD / name)).certificate.digest == audit.release)
    (tmp_path / "house.toml").write_text('name = "Port"\n[limits]\nmax_singling_out = 0.2\nmin_k = 3\n')
    page = exported(release, "assessment", about, audit=audit, house=dn.House.read(tmp_path / "house.toml"))
    for words in ("Singling out", "Linkability", "Inference", "at most 20", "Limits of Port", "Private"):
        assert words in page
    other = dn.Release.read(OLD / "noisy-values")
    refusal(ParameterError, exported, other, "assessment", about, audit=audit)
    about.write_text(ABOUT[: ABOUT.index("[assessment]")])
    assert "assessment" in str(refusal(PolicyError, exported, release, "assessment", about))
