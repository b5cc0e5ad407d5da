-- A ledger of format 2; application_id is "DUNL". Entries can be added at the end of a dataset's chain, never changed
-- or deleted. SQLite has no digests, so hashes and totals are checked by whoever reads; see entries.py.
CREATE TABLE ledger (id TEXT NOT NULL, key TEXT NOT NULL);
CREATE TABLE entries (
  dataset TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL,
  who TEXT NOT NULL, body TEXT NOT NULL, totals TEXT NOT NULL, prev TEXT NOT NULL, hash TEXT NOT NULL,
  PRIMARY KEY (dataset, number),
  CHECK (kind IN ('budget', 'spend', 'proposal', 'approval', 'refusal', 'outcome'))
);
CREATE INDEX entries_kind ON entries (dataset, kind, number);
CREATE INDEX entries_at ON entries (dataset, at);
CREATE INDEX entries_policy ON entries (dataset, json_extract(body, '$.policy')) WHERE kind = 'spend';
CREATE INDEX entries_period ON entries (dataset, json_extract(body, '$.period'), number) WHERE kind = 'spend';
CREATE INDEX entries_model ON entries (dataset, json_extract(body, '$.guarantee.model'), json_extract(body, '$.period'))
  WHERE kind = 'spend';
CREATE INDEX entries_rows ON entries (json_extract(body, '$.rows.any_order')) WHERE kind = 'spend';
CREATE INDEX entries_place ON entries (dataset, json_extract(body, '$.out.place')) WHERE kind = 'spend';
CREATE INDEX entries_token ON entries (dataset, json_extract(body, '$.out.token')) WHERE kind = 'spend';
CREATE INDEX entries_about ON entries (json_extract(body, '$.about')) WHERE kind <> 'budget';
CREATE TRIGGER entries_keep BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER entries_hold BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
-- REPLACE would delete an entry without the delete trigger; the second condition refuses it, as it does gaps and forks.
CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE id = NEW.id)
  OR NEW.number <> 1 + (SELECT coalesce(max(number), 0) FROM entries WHERE dataset = NEW.dataset)
  OR (NEW.number > 1 AND NEW.prev <>
      (SELECT hash FROM entries WHERE dataset = NEW.dataset ORDER BY number DESC LIMIT 1))
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER ledger_keep BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'a ledger keeps its name and key'); END;
CREATE TRIGGER ledger_hold BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'a ledger keeps its name and key'); END;
CREATE TRIGGER ledger_once BEFORE INSERT ON ledger WHEN EXISTS (SELECT 1 FROM ledger)
BEGIN SELECT RAISE(ABORT, 'a ledger keeps its name and key'); END;
PRAGMA application_id = 1146441292;
PRAGMA user_version = 2;
