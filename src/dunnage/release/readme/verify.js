"use strict";
// What can be checked of a release in a browser. The facts were written by the version of Dunnage that made this page.

const checker = (facts) => {
  class Failed extends Error {}
  const need = (holds, what) => {
    if (!holds) throw new Failed(what);
  };
  const states = (holds, what) => need(holds, `certificate.json: ${what}`);
  const several = (num, word) => `${num} ${word}${num === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;

  // SHA-256 (FIPS 180-4). Pages from a disk may lack the browser's own.

  const constants = (() => {
    const primes = [];
    for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
    const part = (root) => (p) => ((root(p) % 1) * 2 ** 32) | 0;
    return { k: primes.map(part(Math.cbrt)), h: primes.slice(0, 8).map(part(Math.sqrt)) };
  })();

  function sha256(bytes) {
    const h = Int32Array.from(constants.h);
    const w = new Int32Array(64);
    const block = (from, at) => {
      for (let i = 0; i < 16; i++, at += 4) {
        w[i] = (from[at] << 24) | (from[at + 1] << 16) | (from[at + 2] << 8) | from[at + 3];
      }
      for (let i = 16; i < 64; i++) {
        const x = w[i - 15];
        const y = w[i - 2];
        const s = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const t = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = (w[i - 16] + s + w[i - 7] + t) | 0;
      }
      let [a, b, c, d, e, f, g, last] = h;
      for (let i = 0; i < 64; i++) {
        const s = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const one = (last + s + ((e & f) ^ (~e & g)) + constants.k[i] + w[i]) | 0;
        const two = (t + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [last, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
      }
      [a, b, c, d, e, f, g, last].forEach((value, i) => (h[i] = (h[i] + value) | 0));
    };
    const whole = bytes.length - (bytes.length % 64);
    for (let at = 0; at < whole; at += 64) block(bytes, at);
    const end = new Uint8Array(bytes.length - whole < 56 ? 64 : 128);
    end.set(bytes.subarray(whole));
    end[bytes.length - whole] = 128;
    for (let i = 0, bits = bytes.length * 8; i < 8; i++, bits = Math.floor(bits / 256)) end[end.length - 1 - i] = bits % 256;
    for (let at = 0; at < end.length; at += 64) block(end, at);
    return [...h].map((value) => (value >>> 0).toString(16).padStart(8, "0")).join("");
  }

  const utf8 = (text) => {
    const escaped = encodeURIComponent(text).replace(/%(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
    return Uint8Array.from(escaped, (char) => char.charCodeAt(0));
  };

  function textOf(bytes, name) {
    need(bytes.length <= facts.max_text, `${name}: too large for this page; run dunnage verify`);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new Failed(`${name}: not UTF-8`);
    }
  }

  // JSON in canonical form: 1 and 1.0 are different, and large whole numbers keep their digits

  class Float {
    constructor(text) {
      this.value = Number(text);
    }
    valueOf() {
      return this.value;
    }
  }
  const isTable = (value) =>
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Float);

  const notJson = "not valid JSON; it was altered or damaged";

  function parse(text) {
    const token =
      /[ \n\r\t]*(?:([{}[\]:,])|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)|(true|false|null))/y;
    let found;
    const next = () => {
      found = token.exec(text);
      states(found, notJson);
      return found[1];
    };
    const value = () => {
      const [, mark, string, number, fraction, power, word] = found;
      if (string !== undefined) return JSON.parse(string);
      if (number !== undefined) {
        if (fraction !== undefined || power !== undefined) return new Float(number);
        return Number.isSafeInteger(Number(number)) ? Number(number) : BigInt(number);
      }
      if (word !== undefined) return JSON.parse(word);
      const made = mark === "{" ? Object.create(null) : [];
      states(mark === "{" || mark === "[", notJson);
      const close = mark === "{" ? "}" : "]";
      if (next() === close) return made;
      for (;;) {
        if (mark === "{") {
          const key = found[2];
          states(key !== undefined && next() === ":", notJson);
          next();
          made[JSON.parse(key)] = value();
        } else made.push(value());
        const after = next();
        if (after === close) return made;
        states(after === ",", notJson);
        next();
      }
    };
    next();
    const made = value();
    states(/^\s*$/.test(text.slice(token.lastIndex)), notJson);
    return made;
  }

  const order = (one, other) => {
    for (let i = 0; ; i++) {
      const [a, b] = [one.codePointAt(i) ?? -1, other.codePointAt(i) ?? -1];
      if (a !== b || a < 0) return a - b;
    }
  };

  function decimal(value) {
    if (Object.is(value, -0)) return "-0.0";
    const [digits, power] = value.toExponential().split("e");
    if (power >= 16 || power < -4) return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
    return Number.isInteger(value) ? `${value}.0` : String(value);
  }

  function canonical(value, space = "  ", indent = "\n") {
    const inner = space && indent + space;
    const colon = space ? ": " : ":";
    if (value instanceof Float) return decimal(value.value);
    if (typeof value === "bigint") return String(value);
    if (typeof value === "string") {
      states(!/\p{Surrogate}/u.test(value), "not in canonical form");
      return JSON.stringify(value);
    }
    if (Array.isArray(value)) {
      const items = value.map((item) => inner + canonical(item, space, inner));
      return items.length ? `[${items.join(",")}${space && indent}]` : "[]";
    }
    if (!isTable(value)) return JSON.stringify(value);
    const names = Object.keys(value).sort(order);
    const items = names.map((name) => inner + canonical(name) + colon + canonical(value[name], space, inner));
    return items.length ? `{${items.join(",")}${space && indent}}` : "{}";
  }

  function fits(value, type) {
    if (Array.isArray(type)) return type.some((one) => fits(value, one));
    if (typeof type === "string") {
      if (type[0] === "#") {
        const of = facts.types[type.slice(1)];
        if (!isTable(value) || !Object.keys(of).every((name) => name.endsWith("?") || name in value)) return false;
        return Object.entries(value).every(([name, one]) => fits(one, of[name] ?? of[`${name}?`] ?? { is: [] }));
      }
      if (type === "float") return value instanceof Float;
      const is = { whole: ["number", "bigint"], text: ["string"], bool: ["boolean"] }[type];
      return is ? is.includes(typeof value) : type === "json" || value === null;
    }
    if (type.is) return type.is.includes(value);
    if (type.list) return Array.isArray(value) && value.every((one) => fits(one, type.list));
    return isTable(value) && Object.values(value).every((one) => fits(one, type.all));
  }

  function* leaves(value) {
    if (Array.isArray(value) || isTable(value)) for (const part of Object.values(value)) yield* leaves(part);
    else yield value;
  }

  /** Whether the certificate states something at a place such as measures.features.*.feature, like a pattern. */
  function isStated(content, place) {
    const [path, like] = place.split("~");
    let values = [content];
    for (const key of path.split(".")) {
      values = values.flatMap((value) => {
        if (key === "*") return Object.values(value ?? []);
        return value !== null && typeof value === "object" && key in value ? [value[key]] : [];
      });
    }
    const some = (value) => value !== null && value !== false && (typeof value !== "object" || Object.keys(value).length > 0);
    return values.some((value) => (like ? new RegExp(`^(${like})$`).test(String(value)) : some(value)));
  }
  const words = (rules, content) =>
    rules.filter(([, ...places]) => !places.length || places.some((place) => isStated(content, place))).map(([text]) => text);

  // The certificate and its files

  function readCertificate(bytes, hash) {
    states(bytes.length <= facts.max_certificate, "larger than any certificate");
    const text = textOf(bytes, facts.certificate);
    const content = parse(text);
    states(isTable(content) && content.format === facts.format, "not a certificate that this page can read; use a newer version");
    const { digest, signature, ...body } = content;
    states(hash(utf8(`${canonical(body)}\n`)) === digest, "its own digest does not match; it was altered or damaged");
    states(`${canonical(content)}\n` === text, "not in canonical form; it was altered or damaged");
    const short = (leaf) =>
      typeof leaf === "string"
        ? !/^-?\d+(\/\d+)?$/.test(leaf) || leaf.length <= facts.max_digits
        : typeof leaf !== "bigint" || (leaf < 2n ** 63n && leaf > -(2n ** 63n));
    states([...leaves(content)].every(short), "a number has more digits than any that certificates need");
    const { digest: own, ...rest } = content;
    const empty = Object.values(rest).includes(null);
    states(fits(rest, "#Certificate") && !empty, "something is missing, unknown or malformed");
    return content;
  }

  function checkSignature(content, keys, matches) {
    if (!content.signature) {
      states(!keys.length, "not signed, so no key that you gave has signed it");
      return ["note", "not signed: digests alone do not detect forgery"];
    }
    if (matches === null) return ["note", "signed, but this browser cannot check Ed25519 signatures; use a newer one, or dunnage verify"];
    const { algorithm, public_key: key, value } = content.signature;
    const form = algorithm === "ed25519" && /^[0-9a-f]{64}$/.test(key) && /^[0-9a-f]{128}$/.test(value);
    states(matches && form, "the signature does not match the certificate");
    if (!keys.length) return ["note", "signed, but the signer was not checked: give a key that you trust"];
    states(keys.includes(key), "signed by a different key from the ones you gave");
    return ["ok", "signed by a key that you gave"];
  }

  function checkFiles(content, files) {
    const present = new Map(files.filter(({ name }) => name !== facts.certificate).map(({ name, digest }) => [name, digest]));
    const problems = [];
    for (const [name, digest] of Object.entries(content.files)) {
      if (!present.has(name)) problems.push(`${name}: listed in the certificate, but missing`);
      else if (!facts.files.includes(name)) problems.push(`${name}: not a file of a release`);
      else if (present.get(name) !== digest) problems.push(`${name}: does not match its digest, so it was changed or damaged`);
    }
    for (const name of present.keys()) if (!(name in content.files)) problems.push(`${name}: not listed in the certificate`);
    need(!problems.length, problems.sort().join("; "));
    need(present.size === files.length - 1, "two files have the same name");
    return `${present.size} files match their digests, and there are no others`;
  }

  function checkStatement(content) {
    const { basis, spend } = content;
    const label = (text) => text.trim() && [...text].length <= facts.max_label && !/\p{C}|\p{Zl}|\p{Zp}|(?! )\p{Zs}/u.test(text);
    const estimates = content.kind === facts.kinds.estimates;
    const texts = {
      time: content.time,
      software: content.software.dunnage,
      spend: spend.id,
      entry: `${spend.number ?? "None"} ${spend.head ?? "None"}`,
    };
    for (const [name, form] of Object.entries(facts.forms)) {
      const like = name === "spend" && estimates ? facts.forms["spend by devices"] : form;
      if (name in texts) states(new RegExp(`^(?:${like})$`).test(texts[name]), `not in the form that certificates use: ${name}`);
    }
    states(Object.values(facts.kinds).includes(content.kind), "this page does not know the kind of release");
    states(label(content.dataset) && (content.period === undefined || label(content.period)), "an unusual name of the dataset or period");
    states(content.time === spend.at, "its time is not the time of the spend");
    states((basis === "proved") !== Boolean(content.why), "gives a reason although it is proved, or none although it is not");
    states(content.holds === undefined || basis === "claimed", "states what holds instead of what is proved");
    const { proof } = content;
    states(!proof || (proof.project === facts.project && proof.version === content.software.dunnage), "the proof is not that of its software");
    states(content.software.dunnage !== facts.version || content.digests_say === facts.digests_say, "says something else about digests");
    return "names, times, versions and ids have their usual form";
  }

  // Tables: each column as the distinct texts of its cells, and a number of one of these for each line

  function readTable(bytes, name, columns) {
    const text = textOf(bytes, `${name}.csv`);
    const head = `${columns.map(([column]) => `"${column.replaceAll('"', '""')}"`).join(",")}\n`;
    need(text.startsWith(head), `${name}.csv: the columns are not those of the certificate`);
    const made = columns.map(([column, type]) => ({ name: `${name}.csv: column ${column}`, type, raw: [], codes: [], seen: new Map() }));
    const cell = /("[^"]*(?:""[^"]*)*"|[^",\n]*)([,\n])/y;
    cell.lastIndex = head.length;
    let num = 0;
    for (; cell.lastIndex < text.length; num++) {
      for (const [at, column] of made.entries()) {
        const found = cell.exec(text);
        need(found && found[2] === (at < made.length - 1 ? "," : "\n"), `${name}.csv: line ${num + 2} is not a line of the table`);
        let code = column.seen.get(found[1]);
        if (code === undefined) column.seen.set(found[1], (code = column.raw.push(found[1]) - 1));
        column.codes.push(code);
      }
    }
    for (const column of made) column.values = column.raw.map((raw) => valueOf(raw, column));
    return { num, of: Object.fromEntries(made.map((column, at) => [columns[at][0], column])) };
  }

  const clockText = /^(\d\d+):([0-5]\d)$/;
  const numberText = /^-?(?:0|[1-9]\d*)(?:\.\d*[1-9])?(?:e[+-]?\d+)?$/;
  const digitsOf = (text) => text.replace(/e.*|[-.]/g, "").replace(/^0+|0+$/g, "");

  function valueOf(raw, { name, type }) {
    const [kind, empty] = [type.replace("?", ""), type.endsWith("?")];
    const quoted = raw.startsWith('"');
    if (raw === "" && empty) return null;
    if (kind === "any" && !quoted) return need(raw !== "" && !/[^\w.:+ -]/.test(raw), `${name}: a value is missing`), raw;
    const text = quoted ? raw.slice(1, -1).replaceAll('""', '"') : raw;
    need(quoted === ["text", "set", "clock", "any"].includes(kind), `${name}: a value is of another type`);
    if (kind === "text" || kind === "any") return text;
    if (kind === "set") return setOf(text, name);
    if (kind === "clock") {
      const found = clockText.exec(text);
      need(found, `${name}: not a time of day`);
      return 60 * found[1] + Number(found[2]);
    }
    const value = Number(text);
    const plain = numberText.test(text) && (digitsOf(text) === digitsOf(String(value)) || /^-?\d+$/.test(text));
    need(plain && (kind !== "integer" || /^-?\d+$/.test(text)), `${name}: not a number as releases write it`);
    return kind === "integer" && !Number.isSafeInteger(value) ? BigInt(text) : value;
  }

  function setOf(text, name) {
    need(/^\{(?:[^\\,{}]|\\[\\,{}])(?:[^\\{}]|\\[\\,{}])*\}$/.test(text), `${name}: not a set`);
    const labels = text.slice(1, -1).match(/(?:[^\\,]|\\.)+|(?<=^|,)(?=,|$)/gs);
    return labels.map((label) => label.replace(/\\(.)/gs, "$1"));
  }

  const every = (table, names, test) => {
    const columns = names.map((name) => table.of[name]);
    for (let line = 0; line < table.num; line++) {
      if (!test(...columns.map(({ values, codes }) => values[codes[line]]), line)) return false;
    }
    return true;
  };

  // Domains

  const real = (amount) => {
    if (typeof amount !== "string") return Number(amount);
    const [above, below] = amount.split("/");
    return Number(above) / Number(below ?? 1);
  };
  const ratio = (amount) => {
    const text = amount instanceof Float ? decimal(amount.value) : String(amount);
    const [above, below] = text.split("/");
    if (below) return [BigInt(above), BigInt(below)];
    const [digits, power] = above.split("e");
    const [whole, part = ""] = digits.split(".");
    const shift = BigInt(Number(power ?? 0) - part.length);
    return shift < 0n ? [BigInt(whole + part), 10n ** -shift] : [BigInt(whole + part) * 10n ** shift, 1n];
  };
  const common = (a, b) => (b ? common(b, a % b) : a);

  /** Whether a number is a point of the public grid: the double nearest to lower + i * resolution. */
  function grid({ lower, resolution }) {
    const [[a, b], [c, d]] = [ratio(lower), ratio(resolution)].map(([n, m]) => [n / common(n < 0n ? -n : n, m), m / common(n < 0n ? -n : n, m)]);
    const below = (b * d) / common(b, d);
    const [first, step] = [Number((a * below) / b), Number((c * below) / d)];
    return (value) => {
      const guess = Math.round((value * Number(below) - first) / step);
      return [guess - 1, guess, guess + 1].some((i) => (first + i * step) / Number(below) === value);
    };
  }

  const clock = (minutes) => `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
  const minutesOf = (text) => 60 * text.split(":")[0] + Number(text.split(":")[1]);

  function labelsOf(domain) {
    if (domain.kind === "time") {
      const made = [];
      for (let at = minutesOf(domain.lower); at < minutesOf(domain.upper); at += domain.window_minutes) made.push(clock(at));
      return made;
    }
    if (domain.kind === "graph") return [...new Set(domain.edges.flatMap(([from, to]) => [from, to]))].sort(order);
    if (domain.kind === "tree") return [...new Set(domain.parents ? Object.entries(domain.parents).flat() : domain.rows.flat())];
    return domain.levels ?? domain.values ?? domain.stops;
  }
  /** Text as CSV has it: a spreadsheet must not run it. */
  const shown = (text) => (new RegExp(facts.runs, "u").test(text) && !new RegExp(facts.plain_number).test(text) ? `'${text}` : text);

  function insideOf(domain, more = []) {
    if (domain.kind === "numeric") return (value) => value >= real(domain.lower) && value <= real(domain.upper);
    const labels = new Set([...labelsOf(domain), ...more].map(shown));
    return (value) => labels.has(value);
  }

  // Rows: classes of records that look alike, slots, or noisy numbers

  const withRole = (content, role) => content.attributes.filter((item) => item.role === role);
  const isNumber = (item) => item.domain?.kind === "numeric";
  const isClock = (item) => item.domain?.clock === true;
  const isSetValued = (content, item) => "distortion" in content.measures && !["numeric", "tree"].includes(item.domain.kind);

  function kindOf(content) {
    if (content.kind === facts.kinds.counts) return ofTrips(content) ? content.kind : "categories";
    if (content.kind !== facts.kinds.rows) return content.kind;
    if (content.measures.slots) return "slots";
    return [facts.models.k, facts.models.sampled].includes(content.guarantee.model) ? "classes" : "noisy";
  }

  function columnsOfRows(content) {
    const [open, sensitive, general] = ["public", "sensitive", "generalised"].map((role) => withRole(content, facts.roles[role]));
    const asIs = [...open, ...sensitive].map((item) => [item.name, isClock(item) ? "clock" : "any"]);
    const type = (item) => (isClock(item) ? "clock" : "number");
    if (kindOf(content) === "noisy") {
      return { data: [["row", "integer"], ...asIs, ...general.flatMap((item) => ["", "_lower", "_upper"].map((end) => [item.name + end, type(item)]))] };
    }
    const { statistic } = content.mechanism;
    const clustered = "distortion" in content.measures;
    const ends = !clustered && ["mean", "multiset"].includes(statistic) ? ["_lower", "_upper", "_mean"] : ["_lower", "_upper"];
    const classes = general.flatMap((item) => {
      if (isNumber(item)) return ends.map((end) => [item.name + end, type(item)]);
      const set = isSetValued(content, item);
      const wide = set && item.domain.kind === "graph" ? [[item.name + facts.diameter, "number"]] : [];
      const counts = set && statistic === "multiset" ? [[item.name + facts.counts, "set"]] : [];
      return [[item.name, set ? "set" : "text"], ...wide, ...counts];
    });
    const tables = {
      data: [["row", "integer"], ["class_id", "integer"], ...asIs, ...classes],
      classes: [["class_id", "integer"], ["size", "integer"], ...classes],
    };
    const member = general.map((item) => [item.name, isNumber(item) ? type(item) : "text"]);
    return statistic === "multiset" && !clustered ? { ...tables, members: [["class_id", "integer"], ...member] } : tables;
  }

  function* checkRows(content, tables) {
    const { data, classes, members } = tables;
    const kind = kindOf(content);
    const [open, sensitive, general] = ["public", "sensitive", "generalised"].map((role) => withRole(content, facts.roles[role]));
    states(content.guarantee.model === facts.models.k || !sensitive.length, "unchanged sensitive columns, which differential privacy does not cover");
    need(every(data, ["row"], (row, line) => row === line), "data: column row is not 0, 1, 2 ...");
    yield several(data.num, "row");
    for (const item of [...open, ...sensitive].filter((one) => one.domain)) {
      need(data.of[item.name].values.every(insideOf(item.domain)), `data: a value of ${item.name} leaves the public domain`);
    }
    if (kind === "noisy") {
      states(content.measures.records === data.num, "the number of records is wrong");
      for (const { name, domain } of general) {
        const inside = insideOf(domain);
        const within = (value, lower, upper) => inside(lower) && inside(upper) && lower <= value && value <= upper;
        need(every(data, [name, `${name}_lower`, `${name}_upper`], within), `data: an interval of ${name} misses its value or leaves the public domain`);
        if (!domain.clock) need(data.of[name].values.every(grid(domain)), `data: a value of ${name} is not on the public grid`);
      }
      yield "every noisy value is on the public grid and in its interval, and that in the public domain";
      return;
    }
    const alike = columnsOfRows(content).classes.slice(2).map(([name]) => name);
    const sizes = yield* checkClasses(content, data, classes, alike, open, kind);
    checkDomains(content, classes, general);
    yield "every interval, node and set lies in the public domain";
    if (members) {
      checkMembers(classes, members, sizes, general);
      yield "multisets fit the sizes, bounds and means of their classes";
    }
    if (kind === "slots") {
      const { slots, classes: num } = content.measures;
      return states(slots.slots === data.num && num === classes.num, "the number of slots is wrong");
    }
    checkSizes(content, data, sizes, sensitive);
    yield "k, numbers and sizes of classes, and risks of the certificate were recomputed";
  }

  function* checkClasses(content, data, classes, alike, open, kind) {
    const { measures, guarantee, mechanism } = content;
    const class_id = data.of.class_id.codes.map((code) => data.of.class_id.values[code]);
    const noisy = Boolean(measures.noise ?? measures.published_intervals);
    const lines = [...class_id.keys()].filter((line) => !noisy || class_id[line] >= 0);
    need(every(classes, ["class_id"], (id, line) => id === line), "classes: class_id is not 0, 1, 2 ...");
    const sizes = new Array(classes.num).fill(0);
    for (const line of lines) {
      need(class_id[line] >= 0 && class_id[line] < classes.num, "data: a class_id is not in classes");
      sizes[class_id[line]]++;
    }
    const k = guarantee.model === facts.models.k ? guarantee.k : mechanism.k;
    if (kind !== "slots") {
      states(Number.isInteger(k) && k >= 2, "the mechanism does not state its k");
      need(lines.length || guarantee.model !== facts.models.k, "data: no row, so nothing is k-anonymous");
      // Times of day are rounded in CSV, so that classes with different times may look alike.
      const rounded = content.attributes.some(isClock);
      let groups = lines.map((line) => (rounded ? class_id[line] : 0));
      for (const name of [...open.map((item) => item.name), ...alike]) {
        const { codes, raw } = data.of[name];
        const seen = new Map();
        groups = lines.map((line, at) => {
          const key = groups[at] * raw.length + codes[line];
          if (!seen.has(key)) seen.set(key, seen.size);
          return seen.get(key);
        });
      }
      const [num, first] = [[], []];
      lines.forEach((line, at) => {
        num[groups[at]] = (num[groups[at]] ?? 0) + 1;
        first[groups[at]] ??= class_id[line];
        need(first[groups[at]] === class_id[line], "data: class_id splits a class");
      });
      const smallest = num.reduce((least, one) => Math.min(least, one), Infinity);
      need(smallest >= k, `data: the smallest class has ${several(smallest, "record")}, not ${k}`);
      need(new Set(first).size === num.length, "data: class_id joins records that do not look alike");
      yield lines.length ? `k = ${k} requested, ${smallest} reached` : `k = ${k} requested, for no rows`;
    }
    for (const { name } of kind === "slots" ? open : []) {
      const first = [];
      const alone = lines.every((line) => (first[class_id[line]] ??= data.of[name].codes[line]) === data.of[name].codes[line]);
      need(alone, "data: a class has slots with different public values");
    }
    need(sizes.every((size) => size > 0), "classes: a class has no row");
    need(every(classes, ["size"], (size, line) => size === sizes[line]), "classes: sizes do not add up");
    for (const name of alike) {
      const [one, other] = [data.of[name], classes.of[name]];
      const same = lines.every((line) => one.raw[one.codes[line]] === other.raw[other.codes[class_id[line]]]);
      need(same, `classes: ${name} differs between classes and data`);
    }
    yield "class sizes, bounds, nodes, sets and means agree between data and classes";
    return sizes;
  }

  function checkDomains(content, classes, general) {
    for (const item of general) {
      const { name, domain } = item;
      if (isNumber(item)) {
        const inside = insideOf(domain);
        const fit = (lower, upper) => (isClock(item) || (inside(lower) && inside(upper))) && lower <= upper;
        need(every(classes, [`${name}_lower`, `${name}_upper`], fit), `classes: an interval of ${name} is empty or leaves the public domain`);
        if (!(`${name}_mean` in classes.of)) continue;
        const within = (lower, mean, upper) => lower <= mean && mean <= upper;
        need(every(classes, [`${name}_lower`, `${name}_mean`, `${name}_upper`], within), `classes: a mean of ${name} lies outside its interval`);
      } else if (isSetValued(content, item)) {
        const code = new Map(labelsOf(domain).map((label, at) => [label, at]));
        const rising = (codes) => codes.every((one, at) => one !== undefined && (at === 0 || codes[at - 1] < one));
        const sound = (labels, size) => labels.length <= size && rising(labels.map((label) => code.get(label)));
        need(every(classes, [name, "size"], sound), `classes: a set of ${name} leaves the public domain, is not in order, or has more values than its class has records`);
        if (!(name + facts.counts in classes.of)) continue;
        const adds = (labels, counts, size) =>
          counts.length === labels.length && counts.every((num) => /^[1-9]\d*$/.test(num)) && counts.reduce((sum, num) => sum + Number(num), 0) === size;
        need(every(classes, [name, name + facts.counts, "size"], adds), `classes: counts of ${name} do not add up to the records of their class`);
      } else {
        const top = domain.kind === "tree" || "distortion" in content.measures ? [] : [facts.any];
        need(classes.of[name].values.every(insideOf(domain, top)), `classes: ${name} has a label that is not a node of the public hierarchy`);
      }
    }
  }

  function checkMembers(classes, members, sizes, general) {
    const found = sizes.map(() => 0);
    const inside = every(members, ["class_id"], (id) => id in found && ++found[id]);
    need(inside && found.every((num, id) => num === sizes[id]), "members: sizes do not add up");
    const names = ["class_id", ...general.map((item) => item.name)];
    const compare = (one, other) => (typeof one === "string" ? order(one, other) : one - other);
    let last = null;
    const sorted = every(members, names, (...cells) => {
      cells.pop();
      const differs = last ? cells.findIndex((cell, at) => cell !== last[at]) : -1;
      const rises = differs < 0 || compare(last[differs], cells[differs]) < 0;
      last = cells;
      return rises;
    });
    need(sorted, "members: not sorted, so their order may link them to rows");
    for (const { name } of general.filter((item) => isNumber(item) && !isClock(item))) {
      const at = (end, id) => classes.of[name + end].values[classes.of[name + end].codes[id]];
      const sums = sizes.map(() => 0);
      const within = (id, value) => ((sums[id] += value), at("_lower", id) <= value && value <= at("_upper", id));
      need(every(members, ["class_id", name], within), `members: values of ${name} do not fit the bounds of their class`);
      const close = (sum, id) => {
        const slack = facts.tolerance * Math.max(Math.abs(at("_lower", id)), Math.abs(at("_upper", id)));
        return Math.abs(sum / sizes[id] - at("_mean", id)) <= slack;
      };
      need(sums.every(close), `members: means of ${name} differ`);
    }
  }

  function checkSizes(content, data, sizes, sensitive) {
    const { measures, guarantee, mechanism } = content;
    const released = sizes.reduce((sum, size) => sum + size, 0);
    const smallest = sizes.reduce((least, size) => Math.min(least, size), Infinity);
    const largest = sizes.reduce((most, size) => Math.max(most, size), 0);
    const known = guarantee.model === facts.models.k;
    const figures = {
      records: released,
      k_asked: known ? guarantee.k : mechanism.k,
      k_reached: sizes.length ? (measures.persons ? measures.persons.smallest : smallest) : null,
      classes: sizes.length,
      class_size: sizes.length ? { smallest, mean: released / sizes.length, largest } : null,
    };
    if (known) {
      const { count, share } = measures.suppressed ?? { count: -1 };
      states(count >= 0 && near(count / (released + count), share), "the number of suppressed records is wrong");
      const mean = sizes.length / released;
      Object.assign(figures, { risks: { prosecutor_highest: 1 / (figures.k_reached ?? NaN), prosecutor_mean: mean, marketer: mean } });
      if (measures.persons) {
        states(guarantee.k <= measures.persons.smallest && measures.persons.smallest <= smallest, "the number of persons does not fit k and the class sizes");
        figures.risks.prosecutor_highest = 1 / smallest;
      }
    }
    for (const [name, value] of Object.entries(figures)) {
      const stated = measures[name] ?? null;
      const pairs = isTable(value) ? Object.entries(value).map(([part, one]) => [one, stated?.[part]]) : [[value, stated]];
      states(pairs.every(([one, other]) => near(one, other)), `wrong figures: ${name}`);
    }
    if (!known) return;
    const named = sensitive.map((item) => item.name).sort().join();
    states(Object.keys(measures.sensitive ?? {}).sort().join() === named, "wrong figures: sensitive");
    for (const { name } of sensitive) {
      const distinct = sizes.map(() => new Set());
      const { codes } = data.of[name];
      data.of.class_id.codes.forEach((code, line) => distinct[data.of.class_id.values[code]].add(codes[line]));
      const least = distinct.reduce((few, one) => Math.min(few, one.size), Infinity);
      states(measures.sensitive[name].l === least, `wrong figures: l of ${name}`);
    }
  }

  const near = (one, other) => {
    if (one === null || other === null) return one === other;
    if (!(other instanceof Float)) return one === other;
    return Math.abs(one - other) <= facts.tolerance * Math.max(1, Math.abs(one), Math.abs(other.value));
  };

  // Counts of trips

  const has = (content, wanted) => content.attributes.some(({ name }) => name === wanted);
  const endsOf = (content) => {
    const [from, to] = facts.ends[has(content, facts.ends.zone[0]) ? "zone" : "stop"];
    return has(content, to) ? [from, to] : [from]; // boardings have no destination
  };
  const ofTrips = (content) => content.attributes.some(({ kind }) => kind === facts.stop);
  const cellColumns = (content) =>
    ofTrips(content) ? [...endsOf(content), "window", ...(has(content, "day") ? ["day"] : [])] : content.attributes.map(({ name }) => name);
  const columnsOfCounts = (content) => ({ data: [...cellColumns(content).map((name) => [name, "text"]), ["count", "integer"]] });

  function* checkCounts(content, { data }) {
    const { measures } = content;
    const named = new Map(content.attributes.map((item) => [item.name, item]));
    const columns = cellColumns(content);
    states(content.attributes.map((item) => item.name).join() === columns.join(), "the attributes do not describe what is counted");
    const places = columns.map((name) => {
      const code = new Map(labelsOf(named.get(name).domain).map((label, at) => [shown(label), at]));
      const { values, codes } = data.of[name];
      need(values.every((value) => code.has(value)), `data: a label of ${name} is not in the public domain`);
      return { num: code.size, at: (line) => code.get(values[codes[line]]) };
    });
    const num = ofTrips(content) ? endsOf(content).length : places.length;
    const sorted = [...places.slice(num).reverse(), ...places.slice(0, num)]; // by day, window, origin, destination
    for (let line = 1; line < data.num; line++) {
      const differs = sorted.find(({ at }) => at(line) !== at(line - 1));
      need(differs && differs.at(line) > differs.at(line - 1), "data: a type is listed twice, or out of order");
    }
    const { values, codes } = data.of.count;
    const signed = content.mechanism.negatives === true;
    need(values.every((count) => (signed ? count != 0 : count > 0)), `data: a count is not ${signed ? "other than" : "above"} zero`);
    let trips = 0n;
    for (const code of codes) trips += BigInt(values[code]);
    const cells = sorted.reduce((product, { num }) => product * BigInt(num), 1n);
    const figures = { trips, cells, cells_with_trips: BigInt(data.num) };
    const wrong = Object.keys(figures).filter((name) => BigInt(measures[name]) !== figures[name]);
    states(!wrong.length, `wrong figures: ${wrong.join(", ")}`);
    const riders = content.guarantee.protects === facts.rider;
    states(riders === Boolean(measures.contribution), "does not state how many trips of a rider were counted");
    const epsilons = (measures.features ?? []).filter((item) => item.epsilon !== undefined).map((item) => real(item.epsilon));
    states(epsilons.every((part) => part > 0), "a part of epsilon is not above 0");
    yield `${several(trips, ofTrips(content) ? "trip" : content.guarantee.protects)} of ${several(data.num, "type")}; each type is one of the ${cells} of the public domain, listed once and in order`;
  }

  // Estimates from reports of vehicles

  function columnsOfEstimates(content) {
    const kinds = new Set(content.attributes.map((item) => item.domain?.kind));
    const wanted = new Set(["quantity", "purpose", "value", "lower", "upper", "unit"]);
    const more = { numeric: ["attribute"], grid: ["cell", "lon", "lat"], paths: ["path"] };
    for (const kind of kinds) for (const name of more[kind] ?? []) wanted.add(name);
    if (content.attributes.some((item) => item.domain?.bins)) for (const name of ["bin_lower", "bin_upper"]) wanted.add(name);
    return { data: facts.estimates.filter(([name]) => wanted.has(name)) };
  }

  function* checkEstimates(content, { data }, hash) {
    const { measures } = content;
    const ascii = canonical(measures.task, "", "").replace(/[^ -~]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
    states(hash(utf8(ascii)) === measures.task_digest, "the task does not match its digest");
    states(content.dataset === measures.task.dataset, "the dataset is not that of the task");
    states(content.spend.id.endsWith(measures.task_digest), "the spend is not that of the task");
    states(content.period === undefined, "estimates have no period");
    states(data.num === measures.lines, "the number of lines is wrong");
    yield "the task matches its digest";
    let line = 0;
    const next = (expected, low, high) => {
      const about = [expected.quantity, expected.purpose, expected.attribute].filter(Boolean).join(" ");
      need(line < data.num, "data: fewer lines than the task has quantities");
      const cell = (name) => data.of[name].values[data.of[name].codes[line]];
      const free = ["value", "lower", "upper", "lon", "lat", "path"];
      const fit = Object.keys(data.of).every((name) => free.includes(name) || cell(name) === (expected[name] ?? (data.of[name].type === "text" ? "" : null)));
      need(fit && (!("path" in data.of) || "path" in expected || cell("path") === ""), `data: a line is not about ${about}`);
      for (const [name, at] of [["lon", 0], ["lat", 1]].filter(([name]) => name in data.of)) {
        const [value, box] = [cell(name), expected.box];
        need(box ? value > box[at] && value < box[at + 2] : value === null, `data: a place of ${about} lies outside the grid`);
      }
      const [value, lower, upper] = ["value", "lower", "upper"].map(cell);
      need(lower !== null && upper !== null && low <= lower && lower <= upper && upper <= high, `data: an interval of ${about} is empty or leaves the public domain`);
      if (value === null) {
        need(lower === low && upper === high && ["mean", "present"].includes(expected.quantity), `data: ${about} has no value, but an interval within the domain`);
      } else need(lower <= value && value <= upper, `data: a value of ${about} lies outside its interval`);
      return { value, path: "path" in data.of ? cell("path") : "", at: line++ };
    };
    const whole = (shares, about) => {
      const sum = shares.reduce((all, { value }) => all + value, 0);
      need(Math.abs(sum - 1) <= facts.sum_tolerance, `data: shares of ${about} do not add up to 1`);
    };
    const purposes = [...new Set(content.attributes.map((item) => item.purpose))];
    for (const purpose of purposes) {
      const items = content.attributes.filter((item) => item.purpose === purpose);
      const reported = Object.keys(measures.reports[purpose] ?? {}).length > 0;
      const { domain } = items[0];
      if (domain.kind === "numeric") checkNumbers(items, purpose, measures.combined[purpose] ?? {}, next, whole);
      else if (reported && domain.kind === "grid") {
        const box = domain.box.map(real);
        const cells = 4 ** (domain.levels - 1);
        const shares = [];
        for (let cell = 0; cell < cells; cell++) shares.push(next({ quantity: "share", purpose, cell, box }, 0, 1));
        if (domain.outside) shares.push(next({ quantity: "share", purpose, cell: cells }, 0, 1));
        whole(shares, purpose);
      } else if (reported) {
        const { paths, listed } = measures.paths?.[purpose] ?? {};
        states(paths === domain.num_paths && listed > 0 && listed <= paths, `does not state the paths of ${purpose}`);
        const shares = [];
        for (let i = 0; i < listed + (listed < paths ? 1 : 0); i++) shares.push(next({ quantity: "share", purpose, path: "" }, 0, 1));
        const texts = shares.map(({ path }) => path);
        if (listed < paths) need(texts.pop() === facts.other, `data: the last line of ${purpose} is not that of all other paths`);
        const place = (text) => text === facts.outside || (/^\d{1,8}$/.test(text) && Number(text) < 4 ** (domain.levels - 1));
        const sound = (text) => text === facts.outside || (text.split(">").length === domain.steps && text.split(">").every(place));
        need(new Set(texts).size === texts.length && texts.every(sound), `data: a path of ${purpose} is listed twice, or is not on the grid`);
        const falls = texts.every((_, i) => i === 0 || shares[i - 1].value >= shares[i].value);
        need(falls, `data: the paths of ${purpose} are not in the order of their shares`);
        whole(shares, purpose);
      }
    }
    need(line === data.num, "data: more lines than the task has quantities");
    yield `${several(line, "line")}: each value lies in its interval and the interval in the public domain; shares add up to 1`;
  }

  function checkNumbers(items, purpose, combined, next, whole) {
    const ends = ({ domain }) => [real(domain.lower), real(domain.upper)];
    for (const item of items) next({ quantity: "mean", purpose, attribute: item.name, unit: item.domain.unit }, ...ends(item));
    for (const item of items.filter(({ missing }) => missing === "symbol")) next({ quantity: "present", purpose, attribute: item.name }, 0, 1);
    for (const item of items.filter(({ name, domain }) => domain.bins && combined[name]?.reports)) {
      const [low, high] = ends(item);
      const { bins, unit } = item.domain;
      const edge = (at) => low + ((high - low) * at) / bins;
      const shares = [];
      for (let at = 0; at < bins; at++) {
        const about = { quantity: "share", purpose, attribute: item.name, bin_lower: edge(at), bin_upper: edge(at + 1) };
        shares.push(next(about, 0, 1));
      }
      whole(shares, `bins of ${item.name}`);
      let last = -Infinity;
      for (const level of facts.quantiles) {
        const { value } = next({ quantity: `quantile ${level}`, purpose, attribute: item.name, unit }, low, high);
        need(value >= last, `data: quantiles of ${item.name} are not in order`);
        last = value;
      }
    }
  }

  // Everything

  /** Check a release; files have a name, a digest and, for JSON and CSV, their bytes. */
  function examine(files, { keys = [], matches = null, hash = sha256 } = {}) {
    const made = { ok: false, basis: "", about: null, checks: [], problems: [], here: [], alone: [] };
    const done = (text, state = "ok") => made.checks.push([state, text]);
    try {
      const bytes = new Map(files.map((file) => [file.name, file.bytes]));
      need(bytes.get(facts.certificate), `there is no ${facts.certificate} among the files, so they are not a release`);
      const content = readCertificate(bytes.get(facts.certificate), hash);
      const kind = kindOf(content);
      made.about = content;
      made.basis = content.basis;
      made.here = words(facts.here, content);
      made.alone = words(facts.alone[kind] ?? [], content);
      done("the certificate is readable, in canonical form, and matches its own digest");
      const [state, text] = checkSignature(content, keys, matches);
      done(text, state);
      done(checkFiles(content, files));
      if (content.software.dunnage === facts.version) {
        const missing = facts.texts.filter((name) => !(name in content.files));
        need(!missing.length, `${missing.join(", ")}: missing`);
      }
      done(checkStatement(content));
      const names = content.attributes.map((item) => `${item.purpose} ${item.name}`);
      states(new Set(names).size === names.length, "an attribute is listed twice");
      const { rows, counts } = facts.kinds;
      const [columnsOf, check] =
        content.kind === rows ? [columnsOfRows, checkRows] : content.kind === counts ? [columnsOfCounts, checkCounts] : [columnsOfEstimates, checkEstimates];
      const expected = columnsOf(content);
      const listed = facts.tables.filter((name) => `${name}.csv` in content.files || `${name}.parquet` in content.files);
      need(listed.join() === Object.keys(expected).join(), "the tables are not those of the certificate");
      const tables = Object.fromEntries(listed.map((name) => {
        need(bytes.get(`${name}.csv`) && `${name}.parquet` in content.files, `${name}: a table has a CSV and a Parquet file`);
        return [name, readTable(bytes.get(`${name}.csv`), name, expected[name])];
      }));
      done("CSV files have the tables and columns of the certificate, without missing values");
      for (const text of check(content, tables, hash)) done(text);
      need(content.basis !== "void", "the basis is void, so nothing is promised");
      made.ok = true;
    } catch (error) {
      // Any other error means that the files are malformed: never pass.
      made.problems.push(error instanceof Failed ? error.message : `the contents are not those of a release (${error.name})`);
    }
    return made;
  }

  /** What a signature signs, to be checked by whoever can; null without one. */
  function signedPart(bytes) {
    try {
      const { signature, digest } = readCertificate(bytes, sha256);
      return signature ? { ...signature, message: utf8(facts.prefix + digest) } : null;
    } catch {
      return null;
    }
  }

  /** Public keys as 64 hexadecimal digits, from lines of these or from PEM. */
  function keysOf(text) {
    const keys = [];
    const rest = text.replace(/-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]*)-----END PUBLIC KEY-----/g, (_, body) => {
      const hex = [...atob(body.replace(/\s/g, ""))].map((char) => char.charCodeAt(0).toString(16).padStart(2, "0")).join("");
      need(hex.length === 88 && hex.startsWith(facts.key_start), "not an Ed25519 public key");
      keys.push(hex.slice(24));
      return "";
    });
    for (const line of rest.split("\n").map((one) => one.replace(/#.*/, "").trim()).filter(Boolean)) {
      need(/^[0-9a-f]{64}(\s|$)/.test(line), "not an Ed25519 public key: give PEM, or 64 hexadecimal digits");
      keys.push(line.slice(0, 64));
    }
    return keys;
  }

  return { examine, sha256, signedPart, keysOf, canonical, parse };
};

if (typeof document !== "undefined") {
  const read = (id) => document.getElementById(id);
  const facts = JSON.parse(read("facts").textContent);
  const { examine, sha256, signedPart, keysOf } = checker(facts);
  const limit = facts.max_text;
  let chosen = [];

  const show = (id, items) => {
    const list = read(id);
    list.replaceChildren(...items.map(([state, text]) => {
      const line = document.createElement("li");
      line.className = state;
      const mark = { ok: "Passed: ", failed: "Failed: ", note: "Note: " }[state];
      if (mark) line.append(Object.assign(document.createElement("span"), { className: "mark", textContent: mark }));
      line.append(text);
      return line;
    }));
    list.closest("section").hidden = !items.length;
  };
  const verdict = (state, title, text) => {
    read("verdict").className = `basis ${state}`;
    read("verdict").replaceChildren(Object.assign(document.createElement("strong"), { textContent: `${title} ` }), text);
    read("verdict").hidden = false;
  };

  async function verifies(part) {
    if (!part) return null;
    const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
    try {
      const key = await crypto.subtle.importKey("raw", bytes(part.public_key), "Ed25519", false, ["verify"]);
      return await crypto.subtle.verify("Ed25519", key, bytes(part.value), part.message);
    } catch (error) {
      return error.name === "DataError" ? false : null;
    }
  }

  async function check() {
    if (!chosen.length) return;
    ["checks", "here", "alone"].forEach((id) => show(id, []));
    let keys;
    try {
      keys = keysOf(read("keys").value);
    } catch (error) {
      verdict("void", "The key cannot be read.", error.message);
      return;
    }
    const files = [];
    for (const { name, file } of chosen) {
      verdict("", "Checking.", `Reading ${name} …`);
      await new Promise((resume) => setTimeout(resume));
      if (file.size > limit) {
        verdict("claimed", "Too large for a browser.", `${name} has more than ${Math.round(limit / 2 ** 20)} MiB. Run dunnage verify on the folder.`);
        return;
      }
      try {
        const bytes = new Uint8Array(await file.arrayBuffer());
        files.push({ name, digest: sha256(bytes), bytes: /\.(json|csv)$/.test(name) ? bytes : null });
      } catch {
        verdict("void", "A file cannot be read.", name);
        return;
      }
    }
    const own = files.find(({ name }) => name === facts.certificate);
    const made = examine(files, { keys, matches: own ? await verifies(signedPart(own.bytes)) : null });
    show("checks", [...made.problems.map((text) => ["failed", text]), ...made.checks]);
    show("here", made.here.map((text) => ["", text]));
    show("alone", made.alone.map((text) => ["", text]));
    const { about } = made;
    const named = about ? `${about.dataset}${about.period ? `, ${about.period}` : ""}: ${about.guarantee.model}, ${about.basis}. ` : "";
    if (made.ok) verdict(made.basis, "In order, as far as this page can check.", `${named}Read below what it cannot.`);
    else verdict("void", "Not in order.", `${named}Do not use this release before its owner explains the failed check.`);
    read("verdict").focus();
  }

  const choose = (files) => {
    chosen = files;
    check();
  };
  /** Names inside the folder: a file in a folder of its own keeps that folder's name, so that it is seen. */
  const picked = (list) => [...list].map((file) => ({ file, name: (file.webkitRelativePath || `/${file.name}`).replace(/^[^/]*\//, "") }));
  async function dropped(entry, path = "") {
    if (entry.isFile) return [{ file: await new Promise((resume, fail) => entry.file(resume, fail)), name: path + entry.name }];
    const found = [];
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resume, fail) => reader.readEntries(resume, fail));
      if (!some.length) return found;
      for (const one of some) found.push(...(await dropped(one, one.isFile ? path : `${path}${one.name}/`)));
    }
  }

  for (const id of ["folder", "files"]) {
    read(id).addEventListener("change", (event) => choose(picked(event.target.files)));
    read(`choose-${id}`).addEventListener("click", () => ((read(id).value = ""), read(id).click()));
  }
  read("key").addEventListener("change", async (event) => {
    read("keys").value = (await Promise.all([...event.target.files].map((file) => file.text()))).join("\n");
    check();
  });
  read("choose-key").addEventListener("click", () => ((read("key").value = ""), read("key").click()));
  read("keys").addEventListener("change", check);
  const drop = read("drop");
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
    });
  }
  document.addEventListener("drop", async (event) => {
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = entries.length ? (await Promise.all(entries.map((entry) => dropped(entry)))).flat() : picked(event.dataTransfer.files);
    choose(files);
  });
  drop.hidden = false;
}
