package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/sqlite"
)

// Another process, or the same one after a restart, continues with the same limits.
func Example() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "limits.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	for range 2 {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			log.Fatal(err)
		}
		db.SetMaxIdleConns(4)
		lim, err := weir.New("api", sqlite.New(db), algorithm.SlidingLog{Limit: 3, Window: 24 * time.Hour}, nil)
		if err != nil {
			log.Fatal(err)
		}
		for range 2 {
			res, err := lim.Allow(context.Background(), "ann")
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(res.Allowed, res.Remaining)
		}
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}
