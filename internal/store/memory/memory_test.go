package memory_test

import (
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

func TestTheModelKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return memory.New() })
}
