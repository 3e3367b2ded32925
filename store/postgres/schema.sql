-- The table of the limiters. A key is in at most one row.
CREATE TABLE IF NOT EXISTS weir (
	-- The key. A key of 2,000 bytes or more is shortened to exactly 2,000 bytes: its
	-- first 1,968 bytes and its SHA-256. An entry of an index has at most 2,704 bytes.
	key bytea PRIMARY KEY,

	-- The value, for example 'g2 1767225600000000'. It is null for a sorted set.
	nums bytea,

	-- The members of a sorted set, by score and then by text.
	scores bigint[],
	texts bytea[],

	-- The end of the row, in microseconds since the Unix epoch.
	expires bigint NOT NULL,

	-- The ten minutes in which the row expires. Sweep uses its index. An index on
	-- expires would make each update of a row write to every index.
	span bigint NOT NULL GENERATED ALWAYS AS (expires / 600000000) STORED
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS weir_span ON weir (span);
