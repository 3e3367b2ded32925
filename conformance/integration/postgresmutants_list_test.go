package integration

// A postgresMutant is a mistake in the code of store/postgres.
type postgresMutant struct {
	mistake string // what the store does
	check   string // finds it
	edits   []edit
	more    string // another file of the package, without its first line
}

// An edit replaces a text of the code, which must stand there once.
type edit struct{ old, wrong string }

const (
	lockColumn = `(SELECT count(pg_advisory_xact_lock(k)) FROM unnest($1::bigint[]) AS k)`
	commit     = `	b.Queue("COMMIT")
	if err := send(ctx, conn, &b); err != nil {`
	runScript = `reply, err := c.Script.Run(tx, c.Keys, c.Args, c.Reply)`
	queueRead = `	b.Queue(read, t.keys)
	results := conn`
	runTxn   = "if err := x.run(ctx, t.pool); err != nil {\n\t\tawait"
	evalOnce = "return s.over().Eval(ctx, script, keys, args, reply)"
	liveRow  = `if expires.Int64 > t.now {`
	setEnds  = `nums = NULL, scores = excluded.scores, texts = excluded.texts, expires = excluded.expires`
)

// placeholders are the edits with which a store inserts a row for each missing key, before it
// locks or reads. The rows expire at expires.
func placeholders(expires string) []edit {
	return []edit{
		{queueRead, `	if t.writes {
		b.Queue("INSERT INTO weir (key, expires) SELECT k, ` + expires + ` FROM unnest($1::bytea[]) AS k ON CONFLICT DO NOTHING", t.keys)
	}
` + queueRead},
		{`if readOnly == "on" {`, `if _, err := results.Exec(); err != nil {
			return err
		}
		if readOnly == "on" {`},
	}
}

// postgresMutants are mistakes that the authors of stores make. conformance/reports/mistakes.md
// lists them.
var postgresMutants = []postgresMutant{
	// Locks and the clock.
	{"The store takes no lock.", "Store/Atomic", []edit{{"pg_advisory_xact_lock(k)", "k"}}, ""},
	{"The store locks only the first key.", "Store/Atomic", []edit{{lockColumn, `(SELECT pg_advisory_xact_lock(($1::bigint[])[1]) IS NULL)`}}, ""},
	{"The store locks the keys in the order of the call.", "Store/Atomic", []edit{{"slices.Sort(t.locks)", "_ = slices.Sort[[]int64]"}}, ""},
	{"The store locks within a process, and not in the database.", "Store/Peer", []edit{
		{"pg_advisory_xact_lock(k)", "k"},
		{"base engine.Base\n}", "base engine.Base\n\tturn\n}"},
		{runTxn, "t.Lock()\n\tdefer t.Unlock()\n\t" + runTxn},
	}, `
import "sync"

type turn struct{ sync.Mutex }
`},
	{"The store inserts missing rows, and then locks the rows that it sees.", "Store/Atomic", append(placeholders("0"),
		edit{"pg_advisory_xact_lock(k)", "k"},
		edit{"WHERE weir.key = k.key OFFSET 0", "WHERE weir.key = k.key OFFSET 0 FOR UPDATE"}), ""},
	{"The store reads the rows as they were before the locks, with REPEATABLE READ.", "Store/Atomic", []edit{{"LEVEL READ COMMITTED", "LEVEL REPEATABLE READ"}}, ""},
	{"The store reads the keys of a read-only script one by one.", "Store/Atomic", []edit{{
		`if err := t.read(ctx, conn); err != nil {`, `if err := t.readEach(ctx, conn); err != nil {`,
	}}, `
import "context"

func (t *txn) readEach(ctx context.Context, conn batcher) error {
	if t.writes {
		return t.read(ctx, conn)
	}
	keys, rows := t.keys, []row(nil)
	for i := range keys {
		t.keys = keys[i : i+1]
		if err := t.read(ctx, conn); err != nil {
			return err
		}
		rows = append(rows, t.rows...)
	}
	t.keys, t.rows = keys, rows
	return nil
}
`},
	{"The clock is now(), when the transaction began.", "Store/Atomic", []edit{{"SELECT clock_timestamp(), k.i", "SELECT now(), k.i"}}, ""},
	{"The clock is read when the first of several keys is locked.", "Store/Atomic", []edit{
		{lockColumn, `(SELECT min(c) FROM (SELECT pg_advisory_xact_lock(k), clock_timestamp() AS c FROM unnest($1::bigint[]) AS k OFFSET 0) AS x)`},
		{"var readOnly string", "var readOnly string\n\t\tvar first time.Time"},
		{"Scan(&readOnly, nil, nil, nil, nil, nil)", "Scan(&readOnly, nil, nil, nil, &first)"},
		{`if readOnly == "on" {`, "t.now = first.UnixMicro()\n\t\tif readOnly == \"on\" {"},
	}, ""},
	{"The clock has milliseconds.", "Store/Time", []edit{{"t.now = now.UnixMicro()", "t.now = now.UnixMilli() * 1000"}}, ""},
	{"The clock goes on while a form runs.", "Store/Time", []edit{{runScript, `reply, err := c.Script.Run(moving{tx}, c.Keys, c.Args, c.Reply)`}}, `
import (
	"time"

	"github.com/weir-go/weir/store"
)

type moving struct{ *store.Loaded }

func (moving) Now() int64 { return time.Now().UnixMicro() }
`},

	// Expiry.
	{"Scripts find a key for an hour after it has expired.", "Store/Expiry", []edit{{liveRow, `if expires.Int64 > t.now || t.calls != nil && expires.Int64 > t.now-3600_000_000 {`}}, ""},
	{"Scripts find an expired key forever.", "Store/Expiry", []edit{{liveRow, `if expires.Int64 > t.now || t.calls != nil && expires.Valid {`}}, ""},
	{"Scripts find a key that expires exactly at Now.", "Store/Expiry", []edit{{liveRow, `if expires.Int64 >= t.now {`}}, ""},
	{"MGet finds expired keys.", "Store/Expiry", []edit{{liveRow, `if expires.Int64 > t.now || t.calls == nil && expires.Valid {`}}, ""},
	{"The members of an expired set come back with the first member of the next set.", "Store/Expiry", []edit{{setEnds, `nums = NULL,
	scores = CASE WHEN weir.expires < excluded.expires - 540000000 THEN weir.scores ELSE NULL END || excluded.scores,
	texts = CASE WHEN weir.expires < excluded.expires - 540000000 THEN weir.texts ELSE NULL END || excluded.texts, expires = excluded.expires`}}, ""},
	{"A set leaves the numbers of the key in the row.", "Store/Expiry", []edit{{"UPDATE SET nums = NULL, scores", "UPDATE SET scores"}}, ""},
	{"Numbers leave the members of the key in the row.", "Store/Nums", []edit{{"nums = excluded.nums, scores = NULL, texts = NULL,", "nums = excluded.nums,"}}, ""},
	{"Keep after Put in one step keeps the old TTL.", "Store/Expiry", []edit{
		{runScript, "keep := keeping{tx, nil}\n\t\tfor _, key := range c.Keys {\n\t\t\tkeep.ends = append(keep.ends, t.rows[t.index[key]].expires)\n\t\t}\n\t\treply, err := c.Script.Run(keep, c.Keys, c.Args, c.Reply)"},
	}, `
import (
	"time"

	"github.com/weir-go/weir/store"
)

type keeping struct {
	*store.Loaded
	ends []int64
}

func (k keeping) Keep(i int, n store.Nums) {
	if left := k.ends[i] - k.Now(); left > 0 {
		k.Put(i, n, time.Duration(left)*time.Microsecond)
		return
	}
	k.Loaded.Keep(i, n)
}
`},
	{"The TTL of a set never gets shorter.", "Store/Expiry", []edit{{setEnds, `nums = NULL, scores = excluded.scores, texts = excluded.texts, expires = greatest(weir.expires, excluded.expires)`}}, ""},
	{"A change that keeps the TTL ends the key.", "Store/Expiry", []edit{{"if change.TTL > 0 {", "if !change.Deleted {"}}, ""},

	// Keys and members.
	{"Keys are cut after 2,048 bytes.", "Store/Keys", []edit{{"const longKey = 2000", "const longKey = 2048"}, {"key = append(key[:longKey-len(sum)], sum[:]...)", "key = key[:longKey]"}}, ""},
	{"Keys lose what is not UTF-8.", "Store/Keys", []edit{{"key := []byte(name)", "key := valid(name)"}}, validUTF8},
	{"Texts of members lose what is not UTF-8.", "Store/Set", []edit{{"m.Score, []byte(m.Text)", "m.Score, valid(m.Text)"}}, validUTF8},
	{"Members are ordered by the alphabet.", "Store/Set", []edit{{runScript, "reply, err := c.Script.Run(ordered{tx, values}, c.Keys, c.Args, c.Reply)"}}, orderedBy("strings.Compare(strings.ToLower(a.Text), strings.ToLower(b.Text))")},
	{"Members with equal scores have no order.", "Store/Set", []edit{{runScript, "reply, err := c.Script.Run(ordered{tx, values}, c.Keys, c.Args, c.Reply)"}}, orderedBy("strings.Compare(b.Text, a.Text)")},
	{"A row is left for each key that a denied call names.", "FixedWindow/Ask", placeholders("9000000000000000"), ""},

	// Batches.
	{"A batch is never committed.", "Batch/Independent", []edit{{commit, `	b.Queue(map[bool]string{true: "ROLLBACK", false: "COMMIT"}[len(t.calls) > 1])
	if err := send(ctx, conn, &b); err != nil {`}}, ""},
	{"The calls of a batch lose each other's updates.", "Batch/Independent", []edit{
		{"for _, c := range t.calls {\n\t\tvalues", "before := slices.Clone(t.rows)\n\tfor _, c := range t.calls {\n\t\tvalues"},
		{"values[i] = t.rows[", "values[i] = before["},
	}, ""},
	{"A failed call undoes the other calls of its batch.", "Batch/Independent", []edit{{commit, `	b.Queue(map[bool]string{true: "ROLLBACK", false: "COMMIT"}[slices.ContainsFunc(t.results, func(r engine.Result) bool { return r.Err != nil })])
	if err := send(ctx, conn, &b); err != nil {`}}, ""},
	{"A failed call of a batch is written.", "Batch/Independent", []edit{{"if err != nil {\n\t\t\tcontinue\n\t\t}\n\t\tfor _, change", "if err != nil && len(t.calls) == 1 {\n\t\t\tcontinue\n\t\t}\n\t\tfor _, change"}}, ""},

	// Errors and contexts.
	{"An error of a form is not marked.", "Store/ScriptError", []edit{{"Reply: reply, Err: err})\n", "Reply: reply, Err: err})\n\t\tif err != nil {\n\t\t\tt.results[len(t.results)-1].Err = errors.New(err.Error())\n\t\t}\n"}}, ""},
	{"A failed call is repeated, whatever the error.", "Store/ScriptError", []edit{{evalOnce, "for range 2 {\n\t\tif out, err := s.over().Eval(ctx, script, keys, args, reply); err == nil {\n\t\t\treturn out, nil\n\t\t}\n\t}\n\t" + evalOnce}}, ""},
	{"A call whose commit got no reply is repeated.", "Faults/Reset", []edit{{runTxn, `err := x.run(ctx, t.pool)
	for try := 0; err != nil && try < 5; try++ {
		x.now, x.results = 0, nil
		err = x.run(ctx, t.pool)
	}
	if err != nil {
		await`}}, ""},
	{"An error of a commit is ignored.", "Faults/ConnectionsKilled", []edit{{commit, "\tb.Queue(\"COMMIT\")\n\tif err := send(ctx, conn, &b); err != nil && t.calls == nil {"}}, ""},
	{"An error of a read-only call is ignored: the keys are missing.", "Faults/ConnectionsKilled", []edit{{`if err := t.read(ctx, conn); err != nil {`, `err = t.read(ctx, conn)
	if t.rows == nil {
		t.rows = make([]row, len(t.keys))
	}
	if err != nil && t.writes {`}}, ""},
	{"The context is ignored during the wait for a lock.", "Store/Cancelled", []edit{{runTxn, "if err := x.run(context.WithoutCancel(ctx), t.pool); err != nil {\n\t\tawait"}}, ""},
	{"A call waits for a lock for 600 ms, whatever its deadline.", "Store/Cancelled", []edit{
		{runTxn, "if err := x.run(context.WithoutCancel(ctx), t.pool); err != nil {\n\t\tawait"},
		{"return nil\n\t}\n\tleft := time.Until(deadline)", "deadline = time.Now().Add(700 * time.Millisecond)\n\t}\n\tleft := time.Until(deadline)"},
	}, ""},
}

// validUTF8 is a function that replaces what is not UTF-8.
const validUTF8 = `
import "bytes"

func valid(s string) []byte { return bytes.ToValidUTF8([]byte(s), []byte("\ufffd")) }
`

// orderedBy is a Tx that orders members by their scores, and then by the expression.
func orderedBy(text string) string {
	return `
import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-go/weir/store"
)

type ordered struct {
	*store.Loaded
	held []store.Content
}

func (o ordered) At(i int, fromEnd int64) (store.Member, bool, error) {
	m, ok, err := o.Loaded.At(i, fromEnd)
	if !ok {
		return m, ok, err
	}
	list := slices.Clone(o.held[i].Members)
	slices.SortFunc(list, func(a, b store.Member) int { return cmp.Or(cmp.Compare(a.Score, b.Score), ` + text + `) })
	return list[int64(len(list))-1-fromEnd], ok, err
}
`
}
