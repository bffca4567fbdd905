package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// BenchmarkSaves compares the stores in one process, each syncing what it commits, but for the model.
func BenchmarkSaves(b *testing.B) {
	for _, runs := range []int{1, 16, 128} {
		for _, c := range []struct {
			name string
			open storetest.Open
		}{
			{"memory", func(testing.TB) store.Store { return memory.New() }},
			{"sqlite", func(t testing.TB) store.Store {
				s, err := sqlite.Open(context.Background(), t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}},
			{"postgres", open},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, runs), func(b *testing.B) { storetest.BenchmarkSaves(b, c.open(b), runs) })
		}
	}
}
