-- A ledger of format 2 in PostgreSQL. People are roles of the database; what each may do is in `members`. Entries can
-- only be added, at the end of a dataset's chain, and `admit` checks each: who, chain, sums, budget and approvals.
CREATE SCHEMA dunnage;
CREATE TABLE dunnage.version (format integer NOT NULL);
CREATE TABLE dunnage.ledger (id text NOT NULL, key text NOT NULL);
CREATE UNIQUE INDEX ledger_once ON dunnage.ledger ((true));
CREATE TABLE dunnage.members (
  dataset text NOT NULL, -- '*' for all
  person text NOT NULL, role text NOT NULL CHECK (role IN ('reader', 'spender', 'officer')),
  PRIMARY KEY (dataset, person)
);
CREATE TABLE dunnage.heads (dataset text PRIMARY KEY, number bigint NOT NULL, hash text NOT NULL);
CREATE TABLE dunnage.entries (
  dataset text NOT NULL, number bigint NOT NULL, kind text NOT NULL, id text NOT NULL UNIQUE, at text NOT NULL,
  who text NOT NULL, body text NOT NULL, totals text NOT NULL, prev text NOT NULL, hash text NOT NULL,
  PRIMARY KEY (dataset, number),
  CHECK (kind IN ('budget', 'spend', 'proposal', 'approval', 'refusal', 'outcome')),
  CHECK (id ~ '^[0-9a-f]{32}$' AND at ~ '^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$'),
  CHECK (length(dataset) BETWEEN 1 AND 1000 AND octet_length(body) <= 1000000 AND octet_length(totals) <= 1000000),
  CHECK (length(regexp_replace(body, '[^[{]', '', 'g')) <= 500 AND body !~ '[0-9]{255}'), -- every reader can follow it
  CONSTRAINT hash_is_true CHECK (hash = encode(sha256(convert_to(
    '16:dunnage ledger 2,' || length(prev) || ':' || prev || ',' || length(dataset) || ':' || dataset || ','
    || length(number::text) || ':' || number || ',' || length(kind) || ':' || kind || ',' || length(id) || ':' || id
    || ',' || length(at) || ':' || at || ',' || length(who) || ':' || who || ',' || length(body) || ':' || body || ','
    || length(totals) || ':' || totals || ',', 'UTF8')), 'hex'))
);
CREATE INDEX entries_kind ON dunnage.entries (dataset, kind, number);
CREATE INDEX entries_at ON dunnage.entries (dataset, at);
CREATE INDEX entries_policy ON dunnage.entries (dataset, (body::jsonb #>> '{policy}')) WHERE kind = 'spend';
CREATE INDEX entries_period ON dunnage.entries (dataset, (body::jsonb #>> '{period}'), number) WHERE kind = 'spend';
CREATE INDEX entries_model ON dunnage.entries
  (dataset, (body::jsonb #>> '{guarantee,model}'), (body::jsonb #>> '{period}')) WHERE kind = 'spend';
CREATE INDEX entries_rows ON dunnage.entries ((body::jsonb #>> '{rows,any_order}')) WHERE kind = 'spend';
CREATE INDEX entries_place ON dunnage.entries (dataset, (body::jsonb #>> '{out,place}')) WHERE kind = 'spend';
CREATE INDEX entries_token ON dunnage.entries (dataset, (body::jsonb #>> '{out,token}')) WHERE kind = 'spend';
CREATE INDEX entries_about ON dunnage.entries ((body::jsonb #>> '{about}')) WHERE kind <> 'budget';

-- Exact fractions as text, "1/10"; null means that there is no bound.
CREATE FUNCTION dunnage.top(a text) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$ SELECT split_part(a, '/', 1)::numeric $$;
CREATE FUNCTION dunnage.bottom(a text) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$ SELECT split_part(a, '/', 2)::numeric $$;
CREATE FUNCTION dunnage.fraction(a numeric, b numeric) RETURNS text LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$ SELECT div(a, gcd(a, b)) || '/' || div(b, gcd(a, b)) $$;
CREATE FUNCTION dunnage.plus(a text, b text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT dunnage.fraction(dunnage.top(a) * dunnage.bottom(b) + dunnage.top(b) * dunnage.bottom(a),
                          dunnage.bottom(a) * dunnage.bottom(b)) $$;
CREATE FUNCTION dunnage.within(a text, b text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT dunnage.top(a) * dunnage.bottom(b) <= dunnage.top(b) * dunnage.bottom(a) $$;
CREATE FUNCTION dunnage.larger(a text, b text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$ SELECT CASE WHEN dunnage.within(a, b) THEN b ELSE a END $$;
CREATE FUNCTION dunnage.half_square(a text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT dunnage.fraction(dunnage.top(a) * dunnage.top(a), 2 * dunnage.bottom(a) * dunnage.bottom(a)) $$;
CREATE FUNCTION dunnage.is_amount(a jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN jsonb_typeof(a) = 'string' AND length(a #>> '{}') <= 2000 AND a #>> '{}' ~ '^(0|[1-9][0-9]*)/[1-9][0-9]*$'
              THEN dunnage.fraction(dunnage.top(a #>> '{}'), dunnage.bottom(a #>> '{}')) = a #>> '{}'
              ELSE false END $$;

-- What the person who is connected may do with a dataset; 'owner' owns the tables and keeps the list of members.
CREATE FUNCTION dunnage.role_of(of_dataset text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'dunnage.entries'::regclass),
                               'USAGE') THEN 'owner' ELSE
    (SELECT role FROM dunnage.members WHERE person = session_user AND dataset IN (of_dataset, '*')
     ORDER BY array_position(ARRAY['officer', 'spender', 'reader'], role) LIMIT 1) END $$;

-- Take the turn on a dataset: wait until whoever spends on it has committed.
CREATE FUNCTION dunnage.turn(of_dataset text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- An older view of the tables would have roles that were taken back since.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a turn needs the isolation level READ COMMITTED' USING ERRCODE = 'DN002';
  END IF;
  IF coalesce(dunnage.role_of(of_dataset), 'reader') = 'reader' THEN
    RAISE EXCEPTION 'you may not write to dataset %', quote_literal(of_dataset) USING ERRCODE = 'DN001';
  END IF;
  INSERT INTO dunnage.heads VALUES (of_dataset, 0, repeat('0', 64)) ON CONFLICT DO NOTHING;
  PERFORM 1 FROM dunnage.heads WHERE dataset = of_dataset FOR UPDATE;
END $$;

-- Which datasets have spends on rows with this digest, also those that the asking person may not read.
CREATE FUNCTION dunnage.recognised(digest text) RETURNS TABLE (dataset text, at text) LANGUAGE sql STABLE
  SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.dataset, e.at FROM dunnage.entries e
  WHERE e.kind = 'spend' AND e.body::jsonb #>> '{rows,any_order}' = digest
    AND (dunnage.role_of('*') IS NOT NULL OR EXISTS (SELECT 1 FROM dunnage.members WHERE person = session_user))
  ORDER BY e.at $$;

-- Whether a table has a text under each of these names; more are allowed.
CREATE FUNCTION dunnage.has_texts(content jsonb, names text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(jsonb_typeof(content) = 'object' AND bool_and(jsonb_typeof(content->name) IS NOT DISTINCT FROM 'string'), false)
  FROM unnest(names) name $$;

CREATE FUNCTION dunnage.totals_after(old jsonb, same_period jsonb, spend jsonb) RETURNS jsonb LANGUAGE plpgsql
  IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  unit text := coalesce(spend #>> '{guarantee,protects}', '');
  result jsonb := old; loss jsonb; sums jsonb; kind text; part text; cost text; period text;
BEGIN
  IF NOT old->'units' ? unit THEN
    result := jsonb_set(result, '{units}', old->'units' || to_jsonb(unit));
  END IF;
  result := jsonb_set(result, '{spends}', to_jsonb((old->>'spends')::bigint + 1));
  FOREACH kind IN ARRAY ARRAY['add-remove', 'replace-one'] LOOP
    loss := spend->'loss'->kind; sums := old->kind;
    FOREACH part IN ARRAY ARRAY['epsilon', 'delta', 'rho'] LOOP
      cost := loss->>part;
      sums := sums || jsonb_build_object(part, dunnage.plus(old->kind->>part, cost));
      CONTINUE WHEN part = 'rho';
      IF spend->>'period' IS NULL THEN
        period := dunnage.plus(old->kind->>('every_' || part), cost);
        sums := sums || jsonb_build_object('every_' || part, period, 'period_' || part, period);
      ELSE
        period := dunnage.plus(same_period->kind->>('period_' || part), cost);
        sums := sums || jsonb_build_object('period_' || part, period,
          'largest_' || part, dunnage.larger(old->kind->>('largest_' || part), period));
      END IF;
    END LOOP;
    result := jsonb_set(result, ARRAY[kind], sums);
  END LOOP;
  RETURN result;
END $$;

-- Totals as clients write them: other spellings of the same JSON (1.0, a name twice) are not what every reader can follow.
CREATE FUNCTION dunnage.written(totals jsonb) RETURNS text LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp AS $$
  SELECT '{' || string_agg(to_json(part) || ':' || CASE jsonb_typeof(content)
    WHEN 'object' THEN (SELECT '{' || string_agg(to_json(key) || ':' || value, ',' ORDER BY key COLLATE "C") || '}'
                        FROM jsonb_each(content))
    WHEN 'array' THEN (SELECT '[' || coalesce(string_agg(unit::text, ',' ORDER BY at), '') || ']'
                       FROM jsonb_array_elements(content) WITH ORDINALITY item(unit, at))
    ELSE content::text END, ',' ORDER BY part COLLATE "C") || '}' FROM jsonb_each(totals) item(part, content) $$;

-- After an entry was inserted (a row that ON CONFLICT drops must not move the head), check it and move the head.
CREATE FUNCTION dunnage.admit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  role text; content jsonb := NEW.body::jsonb;
  totals jsonb; head dunnage.heads; before jsonb; terms jsonb; budget jsonb; rule jsonb; other dunnage.entries; loss jsonb;
  kind text; num_approvals bigint;
  none constant jsonb := (SELECT jsonb_build_object('spends', 0, 'units', '[]'::jsonb, 'add-remove', z, 'replace-one', z)
    FROM (SELECT jsonb_object_agg(k, '0/1') z FROM unnest(ARRAY['epsilon', 'delta', 'rho', 'every_epsilon',
      'every_delta', 'period_epsilon', 'period_delta', 'largest_epsilon', 'largest_delta']) k) zero);
BEGIN
  PERFORM dunnage.turn(NEW.dataset);
  role := coalesce(dunnage.role_of(NEW.dataset), 'reader'); -- it may have changed while this one waited
  IF role = 'reader' THEN
    RAISE EXCEPTION 'you may not write to dataset %', quote_literal(NEW.dataset) USING ERRCODE = 'DN001';
  END IF;
  SELECT * INTO head FROM dunnage.heads WHERE dataset = NEW.dataset;
  IF NEW.number <> head.number + 1 OR NEW.prev <> head.hash THEN
    RAISE EXCEPTION 'the entry does not follow the head of its dataset' USING ERRCODE = 'DN002';
  END IF;
  IF role <> 'owner' AND (NEW.who <> session_user OR abs(extract(epoch FROM
    (left(NEW.at, 19) || '+00')::timestamptz - clock_timestamp())) > 900) THEN -- what "Z" means, a session can choose
    RAISE EXCEPTION 'an entry needs the name of who is connected, and the time of the database to 15 minutes'
      USING ERRCODE = 'DN001';
  END IF;
  IF jsonb_typeof(content) <> 'object' THEN
    RAISE EXCEPTION 'the content of an entry must be a table' USING ERRCODE = 'DN002';
  END IF;
  SELECT e.totals::jsonb INTO before FROM dunnage.entries e WHERE e.dataset = NEW.dataset AND e.number = head.number;
  before := coalesce(before, none); totals := before;
  SELECT e.body::jsonb INTO terms FROM dunnage.entries e
    WHERE e.dataset = NEW.dataset AND e.kind = 'budget' AND e.number < NEW.number ORDER BY e.number DESC LIMIT 1;
  budget := nullif(terms->'budget', 'null'); rule := nullif(terms->'rule', 'null');
  IF NEW.kind IN ('approval', 'refusal', 'outcome') OR (NEW.kind = 'spend' AND content->>'about' IS NOT NULL) THEN
    SELECT * INTO other FROM dunnage.entries e WHERE e.id = content->>'about' AND e.dataset = NEW.dataset
      AND e.number < NEW.number -- a statement may add several, and all are there when the first is checked
      AND e.kind = CASE NEW.kind WHEN 'outcome' THEN 'spend' ELSE 'proposal' END;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the entry is about nothing in this dataset' USING ERRCODE = 'DN002';
    END IF;
  END IF;

  IF NEW.kind = 'budget' THEN
    IF role NOT IN ('officer', 'owner') THEN
      RAISE EXCEPTION 'only an officer may set the budget or the rule of a dataset' USING ERRCODE = 'DN001';
    END IF;
    IF NOT coalesce(content->'budget' = 'null' OR (
      dunnage.is_amount(content #> '{budget,epsilon}') AND dunnage.is_amount(content #> '{budget,delta}')
      AND content #>> '{budget,neighbours}' IN ('add-remove', 'replace-one')
      AND CASE content #>> '{budget,accounting}' WHEN 'sum' THEN true
        WHEN 'concentrated' THEN dunnage.is_amount(content #> '{budget,rho}') END), false)
    THEN
      RAISE EXCEPTION 'a budget needs exact amounts' USING ERRCODE = 'DN002';
    END IF;
    IF NOT coalesce(content->'rule' = 'null' OR (jsonb_typeof(content #> '{rule,people}') = 'object'
      AND content #>> '{rule,approvals}' ~ '^[0-9]{1,4}$'), false) OR NOT dunnage.has_texts(content, ARRAY['note'])
    THEN
      RAISE EXCEPTION 'terms need a note, and a rule its people and approvals' USING ERRCODE = 'DN002';
    END IF;
  ELSIF NEW.kind IN ('approval', 'refusal') AND role <> 'owner' THEN
    IF role <> 'officer' OR other.who = NEW.who THEN
      RAISE EXCEPTION 'only an officer who did not make the proposal may decide on it' USING ERRCODE = 'DN001';
    END IF;
  ELSIF NEW.kind = 'outcome' THEN
    IF role = 'spender' AND other.who <> NEW.who THEN
      RAISE EXCEPTION 'only who spent, or an officer, may say what became of it' USING ERRCODE = 'DN001';
    END IF;
    IF content->>'state' IS NULL OR content->>'state' NOT IN ('released', 'stopped') THEN
      RAISE EXCEPTION 'a spend is released or stopped' USING ERRCODE = 'DN002';
    END IF;
    IF EXISTS (SELECT 1 FROM dunnage.entries e WHERE e.kind = 'outcome' AND e.body::jsonb #>> '{about}' = other.id
               AND e.id <> NEW.id) THEN
      RAISE EXCEPTION 'the spend already has an outcome' USING ERRCODE = 'DN002';
    END IF;
  ELSIF NEW.kind = 'spend' THEN
    IF NOT dunnage.has_texts(content, ARRAY['policy', 'promise', 'basis', 'note'])
      OR NOT dunnage.has_texts(content->'guarantee', ARRAY['model', 'protects'])
      OR coalesce(jsonb_typeof(content->'period'), '') NOT IN ('string', 'null')
      OR NOT (coalesce(content->'rows', 'null') = 'null' OR dunnage.has_texts(content->'rows', ARRAY['as_is', 'any_order']))
      OR NOT (coalesce(content->'out', 'null') = 'null' OR dunnage.has_texts(content->'out', ARRAY['place', 'token', 'machine']))
      OR coalesce(jsonb_typeof(content->'about'), 'null') NOT IN ('string', 'null')
      OR coalesce(jsonb_typeof(content->'allow_unbounded'), 'boolean') <> 'boolean'
    THEN
      RAISE EXCEPTION 'a spend needs texts for what it pays for' USING ERRCODE = 'DN002';
    END IF;
    FOREACH kind IN ARRAY ARRAY['add-remove', 'replace-one'] LOOP
      loss := content->'loss'->kind;
      IF loss IS NULL OR (loss <> 'null' AND NOT coalesce(dunnage.is_amount(loss->'epsilon') AND dunnage.is_amount(loss->'delta')
          AND (loss->'rho' = 'null' OR dunnage.is_amount(loss->'rho'))
          -- rho is half the square of epsilon, unless Gaussian noise has one of its own
          AND (content #>> '{guarantee,model}' = 'concentrated-dp' OR CASE WHEN loss->>'delta' = '0/1'
            THEN loss->>'rho' = dunnage.half_square(loss->>'epsilon')
            ELSE loss->'rho' = 'null' END), false))
      THEN
        RAISE EXCEPTION 'a spend needs its guarantee and exact losses' USING ERRCODE = 'DN002';
      END IF;
    END LOOP;
    SELECT dunnage.totals_after(before, coalesce((SELECT e.totals::jsonb FROM dunnage.entries e
      WHERE e.dataset = NEW.dataset AND e.kind = 'spend' AND e.body::jsonb #>> '{period}' = content->>'period'
        AND e.number < NEW.number ORDER BY e.number DESC LIMIT 1), none), content) INTO totals;
    IF jsonb_array_length(totals->'units') > 50 OR length(content #>> '{guarantee,protects}') > 200 OR EXISTS (
      SELECT 1 FROM unnest(ARRAY['add-remove', 'replace-one']) part, jsonb_each_text(totals->part) item
      WHERE length(item.value) > 2000)
    THEN
      RAISE EXCEPTION 'the sums after this spend would need too many digits or units' USING ERRCODE = 'DN002';
    END IF;
    IF budget IS NOT NULL AND role <> 'owner' THEN
      loss := totals->(budget->>'neighbours');
      IF jsonb_array_length(totals->'units') > 1
        OR loss->>(CASE budget->>'accounting' WHEN 'sum' THEN 'epsilon' ELSE 'rho' END) IS NULL
      THEN
        IF role <> 'officer' OR content->'allow_unbounded' IS DISTINCT FROM 'true' THEN
          RAISE EXCEPTION 'only an officer may make a release that the budget cannot bound' USING ERRCODE = 'DN001';
        END IF;
      ELSIF NOT (CASE budget->>'accounting' WHEN 'sum'
        THEN dunnage.within(loss->>'epsilon', budget->>'epsilon') AND dunnage.within(loss->>'delta', budget->>'delta')
        ELSE dunnage.within(loss->>'rho', budget->>'rho') END)
      THEN
        RAISE EXCEPTION 'the budget does not cover this spend' USING ERRCODE = 'DN003';
      END IF;
    END IF;
    IF coalesce((rule->>'approvals')::integer, 0) > 0 AND role <> 'owner' THEN
      SELECT count(DISTINCT e.who) INTO num_approvals FROM dunnage.entries e
        WHERE e.kind = 'approval' AND e.dataset = NEW.dataset AND e.body::jsonb #>> '{about}' = other.id
          AND e.who <> other.who AND e.number < NEW.number;
      IF num_approvals IS NULL OR num_approvals < (rule->>'approvals')::integer
        OR EXISTS (SELECT 1 FROM dunnage.entries e WHERE e.kind IN ('refusal', 'spend') AND e.dataset = NEW.dataset
                   AND e.body::jsonb #>> '{about}' = other.id AND e.id <> NEW.id)
        OR EXISTS (SELECT 1 FROM unnest(ARRAY['policy', 'promise', 'period', 'rows', 'loss']) part
                   WHERE content->part IS DISTINCT FROM other.body::jsonb->part)
      THEN
        RAISE EXCEPTION 'the spend needs % unused approvals of exactly what it pays for', rule->>'approvals'
          USING ERRCODE = 'DN001';
      END IF;
    END IF;
  END IF;

  IF NEW.totals IS DISTINCT FROM dunnage.written(totals) THEN
    RAISE EXCEPTION 'the totals of the entry do not add up' USING ERRCODE = 'DN002';
  END IF;
  UPDATE dunnage.heads SET number = NEW.number, hash = NEW.hash WHERE dataset = NEW.dataset;
  RETURN NULL;
END $$;

CREATE FUNCTION dunnage.keep() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'a ledger is append-only' USING ERRCODE = 'DN002';
END $$;
CREATE TRIGGER admit AFTER INSERT ON dunnage.entries FOR EACH ROW EXECUTE FUNCTION dunnage.admit();
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON dunnage.entries EXECUTE FUNCTION dunnage.keep();
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON dunnage.ledger EXECUTE FUNCTION dunnage.keep();

ALTER TABLE dunnage.entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE dunnage.heads ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON dunnage.entries FOR SELECT USING (dunnage.role_of(dataset) IS NOT NULL);
CREATE POLICY add ON dunnage.entries FOR INSERT WITH CHECK (dunnage.role_of(dataset) IN ('spender', 'officer'));
CREATE POLICY see ON dunnage.heads FOR SELECT USING (dunnage.role_of(dataset) IS NOT NULL);
REVOKE ALL ON ALL TABLES IN SCHEMA dunnage FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dunnage FROM PUBLIC;
INSERT INTO dunnage.version VALUES (2);
