# SPDX-License-Identifier: Apache-2.0
"""What a release is, in the words of others: catalogues of deployments, of data for learning and of mobility data.

Everything follows from the certificate, except what only people know, which ``about.toml`` has. Nothing is submitted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator

from dunnage.auditing.findings import worst_risks
from dunnage.auditing.run import Audit
from dunnage.errors import ParameterError, PolicyError, Problem, Refusal
from dunnage.exact import decimal_text
from dunnage.model.certificate import Certificate, CountMeasures, Total
from dunnage.model.documents import Flaws, to_text
from dunnage.model.guarantees import (
    ApproximateDP,
    Basis,
    ConcentratedDP,
    Guarantee,
    KAnonymity,
    LocalDP,
    MetricLocalDP,
    Neighbours,
    PureDP,
)
from dunnage.model.house import RISKS, Clearance, House, Limits
from dunnage.model.policy import PolicyReading, Table, Written, checked_copy, key, read_tables
from dunnage.release import CERTIFICATE_FILE, DATAPACKAGE_FILE, Release
from dunnage.release.page import BASIS_WORDS
from dunnage.showing import figures as draw
from dunnage.text import percent, percent_at_most

REGISTRY, CROISSANT, DCAT, ASSESSMENT = "registry", "croissant", "dcat", "assessment"
_THEMES = "https://w3id.org/mobilitydcat-ap"
_EU = "http://publications.europa.eu/resource/authority"


# What only people know


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or re.search(r"[\s<>\"{}|\\^`]", text):
        raise Flaws(Problem("is not a web address", remedy="Write {says}."))
    return text


def _email(text: str) -> str:
    if not re.fullmatch(r"[^@\s<>\"]+@[^@\s<>\"]+", text):
        raise Flaws(Problem("is not an e-mail address", remedy="Write {says}."))
    return text


Address = Annotated[str, AfterValidator(_address)]


class Publisher(Table):
    name: str = key("the name of your organisation")
    kind: Literal["government", "industry", "nonprofit"] = key('"government", "industry" or "nonprofit"')
    homepage: Address = key("a web address, such as https://example.org/")
    email: Annotated[str, AfterValidator(_email)] = key("an address for questions, such as data@example.org")


class Mobility(Table):
    """What a catalogue of mobility data asks for."""

    theme: str = key('a mobility theme, such as "public-transport-scheduled-transport" or "freight-and-logistics"')
    country: str = key('the country, as three letters, such as "DEU"')
    frequency: str = key('how often it is published, such as "WEEKLY", "MONTHLY" or "NEVER"')
    conditions: str = key('conditions of use, such as "licence-provided-free-of-charge"', "licence-provided")


class Assessment(Table):
    """What an impact assessment asks of people."""

    purposes: list[str] = key("what the data were collected for, and what the release is for")
    legal_basis: str = key("the legal basis of the processing")
    recipients: list[str] = key("who gets the release")
    retention: str = key("how long the rows, the key and the release are kept")
    necessity: str = key("why the release is needed, and why less would not do")
    measures: list[str] = key("further measures, such as contracts or training", ["none stated"])


class About(Table):
    """``about.toml``: what only people know about a release."""

    title: str = key("the name of the data product")
    description: str = key("a few sentences on what it contains")
    intended_use: str = key("what it is for")
    region: str = key("the region that it describes")
    url: Address = key("where the folder of the release can be found, such as https://example.org/trips/")
    licence: Address = key("the address of a licence, such as https://creativecommons.org/licenses/by/4.0/")
    authors: list[str] = key("who wrote this file")
    publisher: Publisher = key("a table [publisher]")
    mobility: Mobility | None = key("a table [mobility]", None)
    assessment: Assessment | None = key("a table [assessment]", None)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, needs: str = "") -> About:
        written = Written.read(path)
        document = {name: part for name, part in written.document.items() if name == needs or name not in _USED_BY}
        about, problems = read_tables(cls, PolicyReading(document=checked_copy(document, written.path)))
        if about is not None and needs and getattr(about, needs) is None:
            problems = [Problem("is missing", where=needs, remedy=f"dunnage export --draft shows what [{needs}] has.")]
        if about is None or problems:
            raise PolicyError(str(path), problems)
        return about


def draft_about(release: Release) -> str:
    """Return an ``about.toml`` to fill in, with what the certificate knows."""
    certificate = release.certificate
    known = {
        "title": certificate.dataset + (f", {certificate.period}" if certificate.period else ""),
        "authors": [],
        "conditions": "licence-provided",
        "measures": ["none stated"],
    }

    def lines(model: type[Table], name: str = "") -> Iterator[str]:
        if name:
            yield f"\n[{name}]" + (
                "" if name == "publisher" else f"   # for --to {_USED_BY[name]}; otherwise delete it"
            )
        for field, declared in model.model_fields.items():
            if field not in _TABLES:
                blank = [] if "list" in str(declared.annotation) else ""
                yield f"{field} = {json.dumps(known.get(field, blank), ensure_ascii=False)}   # {declared.description}"

    tables: dict[str, type[Table]] = {"": About, **_TABLES}
    parts = [line for name, model in tables.items() for line in lines(model, name)]
    return "# What only people know about this release: fill in the blanks.\n" + "\n".join(parts) + "\n"


_TABLES: Mapping[str, type[Table]] = {"publisher": Publisher, "mobility": Mobility, "assessment": Assessment}
_USED_BY = {"mobility": DCAT, "assessment": ASSESSMENT}


# The registry of deployments of differential privacy


def _variant(guarantee: Guarantee) -> str:
    if isinstance(guarantee, ConcentratedDP):
        return "Zero-concentrated DP"
    if isinstance(guarantee, ApproximateDP):
        return "Approximate DP"
    return "Pure DP" if isinstance(guarantee, PureDP | LocalDP) else "Custom"


def _held(certificate: Certificate) -> Guarantee:
    """Return the differential privacy that really holds; refuse what a registry of it has no place for."""
    reason = ""
    held = certificate.guarantee if certificate.basis is Basis.PROVED else certificate.holds
    if certificate.basis is Basis.VOID:
        reason = "this release promises nothing: it is void"
    elif isinstance(held or certificate.guarantee, KAnonymity):
        reason = "k-anonymity is not differential privacy: it has no epsilon, does not compose and depends on the data"
    elif held is None:
        reason = f"its guarantee is only claimed, and no bound is known to hold. {certificate.why or ''}".rstrip()
    if reason or held is None:
        raise Refusal(
            f"the registry lists deployments of differential privacy, and {reason.rstrip('.')}. "
            "Other exports have a place for it: --to croissant or --to dcat."
        )
    return held


def _total_words(certificate: Certificate) -> str:
    total = certificate.composition.total
    if not isinstance(total, Total):
        return certificate.composition.rule
    delta = f", delta {total.delta}" if total.delta else ""
    return f"{certificate.composition.rule}. All releases of this dataset so far: epsilon {total.epsilon}{delta}"


def _mechanism_words(certificate: Certificate) -> str:
    parameters = {name: value for name, value in certificate.mechanism.items() if name != "name" and value is not None}
    stated = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in parameters.items())
    return f"{certificate.mechanism_name} of Dunnage {certificate.software.dunnage} ({stated})"


def _domain_words(certificate: Certificate) -> str:
    columns = []
    for item in certificate.attributes:
        domain = {name: value for name, value in (item.domain or {}).items() if name in ("lower", "upper", "unit")}
        bounds = ", ".join(f"{name} {value}" for name, value in domain.items() if value not in (None, ""))
        columns.append(f"{item.name} ({item.kind or item.domain_kind or item.role}{f': {bounds}' if bounds else ''})")
    return f"Tables with these columns, whose domains are public: {', '.join(columns)}."


def registry(release: Release, about: About) -> str:
    """Return an entry of the OpenDP Deployments Registry, as a draft in YAML."""
    certificate = release.certificate
    held = _held(certificate)
    stated, unit = held.to_dict(), held.protects
    parameters = {name: float(str(stated[name])) for name in ("epsilon", "delta", "rho") if stated.get(name)}
    local = isinstance(held, LocalDP | MetricLocalDP)
    neighbours = {
        Neighbours.ADD_REMOVE: f"one has one {unit} more than the other",
        Neighbours.REPLACE_ONE: f"they differ in one {unit}; their number is the same",
    }[held.neighbours]  # type: ignore[union-attr]  # it is not k-anonymity
    bound = certificate.measures.contribution if isinstance(certificate.measures, CountMeasures) else None
    at_most = f" At most {bound.max} trips of a {unit} count per {bound.per}." if bound is not None else ""
    within = f" It holds only {held.model.replace('-', ' ')}." if _variant(held) == "Custom" else ""
    many = certificate.period is not None
    keeps = "Each device keeps its own budget." if local else "A ledger of the owner keeps the budget."
    rules = [
        f"{item.name}: rule for {rule} values: {what}"
        for item in certificate.attributes
        for rule, what in (("missing", item.missing), ("outside", item.outside), ("unreadable", item.unreadable))
        if what
    ]
    tuning = (
        "Parameters are in the policy of the owner. What the owner saw in private dry runs and audits is not counted."
    )
    fields: dict[str, Any] = {
        "url_slug": _slug(f"{about.title} {about.publisher.name} {certificate.time[:4]}"),
        "deployment": {
            "basic": {
                "name": about.title,
                "data_curators": [
                    {
                        "data_curator_name": about.publisher.name,
                        "data_curator_type": about.publisher.kind.capitalize(),
                    }
                ],
                "description": about.description,
                "intended_use": about.intended_use,
                "data_product_type": "Dataset" if certificate.kind == "rows" else "Summary statistics",
                "data_product_region": about.region,
                "publication_date": certificate.time[:10],
            },
            "dp_variant": {
                "variant_name": _variant(held),
                "data_domain": _domain_words(certificate),
                "unprotected_quantities": _list(certificate.in_clear) or "None.",
            },
            "privacy_loss": {
                "privacy_unit": f"{unit.capitalize()}-level",
                "privacy_unit_details": f"Datasets are adjacent if {neighbours}.{at_most}{within}",
                "privacy_parameters": parameters,
                "privacy_parameters_details": " ".join(
                    [*certificate.meaning.sentences, *release.owner.loss_words(certificate)]
                ),
            },
            "deployment_model": {
                "model_name": "Local" if local else "Central",
                "model_name_details": "Noise is added on each device before anything is sent."
                if local
                else "The owner of the rows adds the noise; only the release leaves.",
                "trust_assumptions": _list(f"{name}: {words}" for name, words in certificate.assumptions.items()),
                "release_type": "Many releases" if many else "One release",
                "release_type_details": f"{_total_words(certificate)}. {keeps}",
                "data_source_type": "Dynamic" if many else "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _list([*rules, tuning]),
                "mechanisms": _list([_mechanism_words(certificate), f"Numbers: {certificate.numerics}"]),
                "composition": _total_words(certificate),
                "post_processing": "All other figures of the release follow from what was sampled with noise.",
                "justification": _list(
                    [BASIS_WORDS[str(certificate.basis)], *([str(certificate.proof)] if certificate.proof else [])]
                ),
                "additional_information": f"{about.url} (SHA-256 of the certificate: {certificate.digest})",
            },
            "administrative": {"status": "Draft", "registry_authors": list(about.authors), "tier": 3},
        },
    }
    return _yaml(fields)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:120] or "release"


def _list(items: Any) -> str:
    return "\n".join(f"- {item}" for item in items)


def _yaml(value: Any, indent: str = "") -> str:
    """Write plain data as YAML; texts of several lines as blocks, all others quoted."""
    if isinstance(value, Mapping):
        lines = []
        for name, item in value.items():
            nested = isinstance(item, Mapping | list) and bool(item)
            if isinstance(item, str) and "\n" in item:
                block = "".join(f"\n{indent}  {line}" for line in item.splitlines())
                lines.append(f"{indent}{name}: |-{block}")
            else:
                text = _yaml(item, f"{indent}  ") if nested else json.dumps(item, ensure_ascii=False)
                text = re.sub(r"^(\d+)e", r"\1.0e", text)  # YAML reads 1e-06 as a text
                lines.append(f"{indent}{name}:" + (f"\n{text.rstrip()}" if nested else f" {text}"))
        return "\n".join(lines) + "\n"
    parts = []
    for item in value:
        text = _yaml(item, f"{indent}  ") if isinstance(item, Mapping) else json.dumps(item, ensure_ascii=False)
        parts.append(f"{indent}- {text.strip()}")
    return "\n".join(parts) + "\n"


# Croissant, for learning from data

_CONTEXT_TERMS = {
    "cr": (
        *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileProperty"),
        *("fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5"),
        *("parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate"),
        *("separator", "source", "subField", "transform"),
    )
}
_DATA_TYPES = {"integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean", "date": "sc:Date"}
_FORMATS = {
    "csv": ("text/csv", "CSV"),
    "parquet": ("application/vnd.apache.parquet", "PARQUET"),
    "json": ("application/json", "JSON"),
    "html": ("text/html", "HTML"),
    "md": ("text/markdown", "MD"),
}


def _files(release: Release) -> dict[str, str]:
    """Return the files of a release with their digests; the certificate has those of all others."""
    return dict(sorted(release.certificate.files.items()))


def croissant(release: Release, about: About) -> str:
    """Return a Croissant 1.1 description with responsible-AI fields, as JSON-LD."""
    certificate, context = release.certificate, {name: f"cr:{name}" for name in _CONTEXT_TERMS["cr"]}
    records = []
    for table in release.tables:
        fields = [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column['name']}",
                "name": column["name"],
                "description": column["description"],
                "dataType": _DATA_TYPES.get(column["type"], "sc:Text"),
                "source": {"fileObject": {"@id": f"{table}.csv"}, "extract": {"column": column["name"]}},
            }
            for column in release.columns_of(table)
        ]
        records.append({"@type": "cr:RecordSet", "@id": table, "name": table, "field": fields})
    content = {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "sc": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "rai": "http://mlcommons.org/croissant/RAI/",
            "dct": "http://purl.org/dc/terms/",
            **dict(sorted(context.items())),
            "conformsTo": "dct:conformsTo",
            "data": {"@id": "cr:data", "@type": "@json"},
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            "examples": {"@id": "cr:examples", "@type": "@json"},
            "description": {"@container": "@language"},
            "name": {"@container": "@language"},
        },
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": about.title,
        "description": about.description,
        "url": about.url,
        "license": about.licence,
        "citeAs": f"{about.publisher.name}: {about.title}. {certificate.time[:10]}. {about.url}",
        "creator": {"@type": "Organization", "name": about.publisher.name, "url": about.publisher.homepage},
        "datePublished": certificate.time[:10],
        "version": "1.0.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": _link(about, name),
                "encodingFormat": _FORMATS[name.rpartition(".")[2]][0],
                "sha256": digest,
            }
            for name, digest in _files(release).items()
        ],
        "recordSet": records,
        "rai:dataCollection": _collected(certificate),
        "rai:dataManipulationProtocol": f"{_mechanism_words(certificate)}. {certificate.numerics}.",
        "rai:dataUseCases": [about.intended_use],
        "rai:dataLimitations": [
            *release.owner.cautions(release),
            *(certificate.warnings or ()),
            *(f"It assumes {name}: {words}." for name, words in certificate.assumptions.items()),
        ],
        "rai:personalSensitiveInformation": [
            *_promise_words(certificate),
            *(f"Released in clear: {item}." for item in certificate.in_clear),
        ],
        "rai:dataReleaseMaintenancePlan": f"{_total_words(certificate)}.",
    }
    return to_text({name: value for name, value in content.items() if value})


def _link(about: About, name: str) -> str:
    return f"{about.url.rstrip('/')}/{quote(name)}"


def _collected(certificate: Certificate) -> str:
    source = (
        "reports that devices perturbed before they sent them" if certificate.kind == "estimates" else "private rows"
    )
    period = f" of the period {certificate.period}" if certificate.period else ""
    return f"Made from {source}{period} of the dataset {certificate.dataset}, which stay with their owner."


def _promise_words(certificate: Certificate) -> list[str]:
    stated = ", ".join(f"{name} {value}" for name, value in certificate.guarantee.to_dict().items())
    basis = BASIS_WORDS[str(certificate.basis)]
    return [f"Guarantee: {stated}. {basis}", *certificate.meaning.sentences]


# mobilityDCAT-AP, for catalogues of mobility data


def dcat(release: Release, about: About) -> str:
    """Return a catalogue of one dataset after mobilityDCAT-AP 1.1, as JSON-LD."""
    certificate, mobility, base = release.certificate, about.mobility, about.url.rstrip("/")
    assert mobility is not None
    where = {"@type": "dct:Location", "@id": f"{_EU}/country/{mobility.country.upper()}"}
    owner = {"@type": "foaf:Agent", "@id": f"{base}#publisher", "foaf:name": about.publisher.name}
    owner["foaf:mbox"] = {"@id": f"mailto:{about.publisher.email}"}  # type: ignore[assignment]
    language, day = {"@id": f"{_EU}/language/ENG"}, {"@value": certificate.time[:10], "@type": "xsd:date"}

    def said(text: str) -> dict[str, str]:
        return {"@value": text, "@language": "en"}

    distributions = [
        {
            "@type": "dcat:Distribution",
            "@id": f"{_link(about, name)}#distribution",
            "dct:title": said(name),
            "dct:description": said(f"SHA-256 {digest}"),
            "dcat:accessURL": {"@id": _link(about, name)},
            "dcat:downloadURL": {"@id": _link(about, name)},
            "dct:format": {"@id": f"{_EU}/file-type/{_FORMATS[name.rpartition('.')[2]][1]}"},
            "dct:license": {"@type": "dct:LicenseDocument", "@id": about.licence},
            "dct:rights": {
                "@type": "dct:RightsStatement",
                "dct:type": {"@id": f"{_THEMES}/conditions-for-access-and-usage/{mobility.conditions}"},
            },
            "mobilitydcatap:mobilityDataStandard": {
                "@type": "mobilitydcatap:MobilityDataStandard",
                "@id": f"{base}#standard",
                "owl:versionInfo": f"Dunnage release, format {certificate.format}",
                "mobilitydcatap:schema": {"@id": _link(about, DATAPACKAGE_FILE)},
            },
        }
        for name, digest in _files(release).items()
        if name.endswith((".csv", ".parquet"))
    ]
    measure = "Anonymisation" if isinstance(certificate.guarantee, KAnonymity) else "DifferentialPrivacy"
    dataset = {
        "@type": "dcat:Dataset",
        "@id": f"{base}#dataset",
        "dct:title": said(about.title),
        "dct:description": said(f"{about.description} {' '.join(_promise_words(certificate))}"),
        "dct:identifier": f"{base}#dataset",
        "dct:issued": day,
        "dct:publisher": owner,
        "dct:spatial": where,
        "dct:accrualPeriodicity": {"@id": f"{_EU}/frequency/{mobility.frequency.upper()}"},
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": said(
                " ".join([_collected(certificate), *(f"In clear: {item}." for item in certificate.in_clear)])
            ),
        },
        "dct:conformsTo": {"@id": _link(about, CERTIFICATE_FILE), "@type": "dct:Standard"},
        "dpv:hasTechnicalMeasure": {"@id": f"dpv:{measure}"},
        "mobilitydcatap:mobilityTheme": {"@id": f"{_THEMES}/mobility-theme/{mobility.theme}"},
        "dcat:contactPoint": {
            "@type": "vcard:Kind",
            "vcard:fn": about.publisher.name,
            "vcard:hasEmail": {"@id": f"mailto:{about.publisher.email}"},
            "vcard:hasURL": {"@id": about.publisher.homepage},
        },
        "dcat:distribution": distributions,
    }
    record = {
        "@type": "dcat:CatalogRecord",
        "@id": f"{base}#record",
        "foaf:primaryTopic": {"@id": dataset["@id"]},
        "dct:language": language,
        "dct:created": day,
        "dct:modified": day,
    }
    catalogue = {
        "@context": _PREFIXES,
        "@type": "dcat:Catalog",
        "@id": f"{base}#catalogue",
        "dct:identifier": f"{base}#catalogue",
        "dct:title": said(f"Releases of {about.publisher.name}"),
        "dct:description": said(f"What {about.publisher.name} has released about {about.region}."),
        "dct:language": language,
        "dct:publisher": {"@id": owner["@id"]},
        "dct:spatial": {"@id": where["@id"]},
        "foaf:homepage": {"@id": about.publisher.homepage},
        "dcat:record": record,
        "dcat:dataset": dataset,
    }
    return to_text(catalogue)


_PREFIXES = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "mobilitydcatap": "https://w3id.org/mobilitydcat-ap#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


# The data-protection impact assessment


def assessment_page(release: Release, about: About, audit: Audit | None = None, house: House | None = None) -> str:
    """Return a page that fills in what certificate, audit and house limits know; people judge and sign."""
    certificate, people = release.certificate, about.assessment
    assert people is not None
    if audit is not None and audit.release != certificate.digest:
        raise ParameterError("the audit is of another release. Give the audit of this one.")
    risks = []
    for name in RISKS:
        found = [item for item in (audit.risks if audit is not None else ()) if item.risk == name]
        limit = getattr(house.limits, f"max_{name.replace(' ', '_')}") if house is not None else None
        worst = found[0] if found else None
        risks.append(
            {
                "name": name,
                "measured": percent(worst.severity or 0.0) if worst is not None else "not measured",
                "limit": "no limit" if limit is None else f"at most {percent(float(limit))}",
                "finding": "" if worst is None else f"{worst.name}: {worst.sentence}",
                "remedy": "" if worst is None else worst.remedy or "",
            }
        )
    clearance: Clearance | None = None
    if house is not None:
        measured = house.of_risks(worst_risks(audit.findings)) if audit is not None else []
        clearance = house.clear([*house.of_statement(certificate), *house.of_certificate(certificate), *measured])
    limits = {name: getattr(house.limits, name) for name in Limits.model_fields} if house is not None else {}
    content = {
        "title": f"Impact assessment: {about.title}",
        "about": about,
        "people": people,
        "certificate": certificate,
        "private": audit is not None and not audit.external,
        "promise": _promise_words(certificate),
        "odds": draw.odds_words(certificate.meaning.odds, percent_at_most),
        "risks": risks,
        "audited": audit is not None,
        "clearance": clearance,
        "limits": [
            f"{name} = {decimal_text(value) if isinstance(value, Fraction) else value}"
            for name, value in limits.items()
            if value is not None
        ],
        "house": None if house is None else house.name,
        "measures": [
            _mechanism_words(certificate),
            f"Random numbers: {certificate.numerics}",
            f"Budget: {_total_words(certificate)}. Entry {certificate.spend.id} of the owner's ledger paid for it",
            "Keys and private rows stay with the owner; the release is signed"
            if certificate.signature is not None
            else "Keys and private rows stay with the owner; the release is not signed",
        ],
        "columns": [
            (item.name, item.role, item.kind or item.domain_kind, item.unit) for item in certificate.attributes
        ],
    }
    return draw.render("assessment.html", content)


def exported(
    release: Release,
    to: str,
    about: str | os.PathLike[str],
    *,
    audit: Audit | None = None,
    house: House | None = None,
) -> str:
    """Return the text of an export; an :class:`InputError` lists what ``about.toml`` lacks."""
    made: dict[str, Callable[[About], str]] = {
        REGISTRY: lambda facts: registry(release, facts),
        CROISSANT: lambda facts: croissant(release, facts),
        DCAT: lambda facts: dcat(release, facts),
        ASSESSMENT: lambda facts: assessment_page(release, facts, audit, house),
    }
    if to not in made:
        raise ParameterError(f"--to must be one of {', '.join(made)}. Got {to!r}.")
    if to == REGISTRY:
        _held(release.certificate)  # before anybody fills in a form for nothing
    return made[to](About.read(about, needs={DCAT: "mobility", ASSESSMENT: "assessment"}.get(to, "")))
