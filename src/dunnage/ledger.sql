-- A ledger of format 1; application_id is "DUNL". Rows can be added, never changed or deleted.
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO meta VALUES ('kind', 'dunnage ledger'), ('format', '1');
CREATE TABLE budgets (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL, who TEXT NOT NULL, dataset TEXT NOT NULL,
  epsilon TEXT NOT NULL, delta TEXT NOT NULL, neighbours TEXT NOT NULL, note TEXT NOT NULL
);
CREATE TABLE spends (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, who TEXT NOT NULL, dataset TEXT NOT NULL, period TEXT,
  policy_digest TEXT NOT NULL, promise_digest TEXT NOT NULL, guarantee TEXT NOT NULL, basis TEXT NOT NULL,
  epsilon_add_remove TEXT NOT NULL, delta_add_remove TEXT NOT NULL,
  epsilon_replace_one TEXT NOT NULL, delta_replace_one TEXT NOT NULL,
  note TEXT NOT NULL
);
CREATE INDEX budgets_of ON budgets (dataset, number);
CREATE INDEX spends_of ON spends (dataset, period, policy_digest);
CREATE TRIGGER budgets_keep BEFORE UPDATE ON budgets
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER budgets_hold BEFORE DELETE ON budgets
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER budgets_once BEFORE INSERT ON budgets
WHEN EXISTS (SELECT 1 FROM budgets WHERE number = NEW.number)
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
-- REPLACE would delete a row without the delete trigger, so a second row with the same number or id is refused too.
CREATE TRIGGER spends_keep BEFORE UPDATE ON spends
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER spends_hold BEFORE DELETE ON spends
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER spends_once BEFORE INSERT ON spends
WHEN EXISTS (SELECT 1 FROM spends WHERE number = NEW.number OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
PRAGMA application_id = 1146441292;
PRAGMA user_version = 1;
COMMIT;
