//go:build unix

package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// recorder is a VFS of SQLite that does what the system's does and records, per directory, what changes files. While a test
// watches, it is the default, so that the store's own code opens its files through it and knows nothing of it.
//
// A file is opened by the system's VFS; then its table of methods is exchanged for a copy in which writing, truncating, syncing
// and closing are the recorder's. All else (reads, locks, the shared memory of the WAL index) goes straight to the system's.
var recorder struct {
	sync.Mutex
	system *lib.Tsqlite3_vfs
	tables map[uintptr]uintptr // the system's table of methods → its copy
	disks  map[string]*disk    // by directory
	files  map[uintptr]recorded
	// syncFails has every sync of a watched file fail.
	syncFails atomic.Bool
}

// recorded is an open file. Its disk is nil when nobody cuts its power.
type recorded struct {
	methods *lib.Tsqlite3_io_methods // the system's
	disk    *disk
	file    int
}

// record has the recorder watch for the length of a test. Tests that record can't run at the same time.
func record(t testing.TB) {
	conn, err := sqlite.OpenConn(":memory:") // which makes SQLite ready
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tls := libc.NewTLS()
	r := &recorder
	r.tables, r.disks, r.files = map[uintptr]uintptr{}, map[string]*disk{}, map[uintptr]recorded{}
	r.system = at[lib.Tsqlite3_vfs](lib.Xsqlite3_vfs_find(tls, 0))
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*r.system)))
	name, err := libc.CString("nelkap-recorder")
	if own == 0 || err != nil {
		t.Fatal("no memory")
	}
	vfs := at[lib.Tsqlite3_vfs](own)
	*vfs = *r.system
	vfs.FzName, vfs.FpNext = name, 0
	vfs.FxOpen, vfs.FxDelete = pointer(recordOpen), pointer(recordDelete)
	if code := lib.Xsqlite3_vfs_register(tls, own, 1); code != lib.SQLITE_OK {
		t.Fatalf("registering the VFS: code %d", code)
	}
	t.Cleanup(func() {
		lib.Xsqlite3_vfs_unregister(tls, own) // the system's is the default again
		for _, table := range r.tables {
			libc.Xfree(tls, table)
		}
		libc.Xfree(tls, name)
		libc.Xfree(tls, own)
		tls.Close()
		if len(r.files) > 0 {
			t.Errorf("%d files are still open", len(r.files))
		}
	})
}

// watch begins the record of a directory that holds base; done ends it.
func watch(t testing.TB, dir string, base map[string][]byte) (d *disk, done func()) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	d = newDisk(base)
	recorder.Lock()
	defer recorder.Unlock()
	recorder.disks[dir] = d
	return d, func() {
		recorder.Lock()
		defer recorder.Unlock()
		delete(recorder.disks, dir)
	}
}

// at gives what lies at an address in SQLite's memory, which is not Go's.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// pointer gives a declared function as SQLite keeps it, and function gives it back.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func function[F any](address uintptr) F { return *(*F)(unsafe.Pointer(&struct{ uintptr }{address})) }

func recordOpen(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](recorder.system.FxOpen)
	code := open(tls, uintptr(unsafe.Pointer(recorder.system)), name, file, flags, outFlags)
	if code != lib.SQLITE_OK {
		return code
	}
	recorder.Lock()
	defer recorder.Unlock()
	header := at[lib.Tsqlite3_file](file)
	entry := recorded{methods: at[lib.Tsqlite3_io_methods](header.FpMethods)}
	if name != 0 { // else a temporary file
		path := libc.GoString(name)
		if d := recorder.disks[filepath.Dir(path)]; d != nil {
			entry.disk, entry.file = d, d.opened(filepath.Base(path))
		}
	}
	recorder.files[file] = entry
	table := recorder.tables[header.FpMethods]
	if table == 0 {
		table = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*entry.methods)))
		own := at[lib.Tsqlite3_io_methods](table)
		*own = *entry.methods
		own.FxClose, own.FxWrite, own.FxTruncate, own.FxSync = pointer(recordClose), pointer(recordWrite), pointer(recordTruncate), pointer(recordSync)
		recorder.tables[header.FpMethods] = table
	}
	header.FpMethods = table
	return code
}

func recordDelete(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	remove := function[func(*libc.TLS, uintptr, uintptr, int32) int32](recorder.system.FxDelete)
	code := remove(tls, uintptr(unsafe.Pointer(recorder.system)), name, 0)
	if code != lib.SQLITE_OK {
		return code
	}
	path := libc.GoString(name)
	recorder.Lock()
	d := recorder.disks[filepath.Dir(path)]
	recorder.Unlock()
	if d != nil {
		d.removed(filepath.Base(path))
		if syncDir != 0 {
			d.add(event{kind: dirSynced})
		}
	}
	return code
}

func entryOf(file uintptr) recorded {
	recorder.Lock()
	defer recorder.Unlock()
	entry, ok := recorder.files[file]
	if !ok {
		panic(fmt.Sprintf("no open file at %#x", file))
	}
	return entry
}

func recordClose(tls *libc.TLS, file uintptr) int32 {
	entry := entryOf(file)
	recorder.Lock()
	delete(recorder.files, file)
	recorder.Unlock()
	return function[func(*libc.TLS, uintptr) int32](entry.methods.FxClose)(tls, file)
}

func recordWrite(tls *libc.TLS, file, data uintptr, size int32, offset int64) int32 {
	entry := entryOf(file)
	code := function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](entry.methods.FxWrite)(tls, file, data, size, offset)
	if code == lib.SQLITE_OK && entry.disk != nil {
		entry.disk.add(event{kind: wrote, file: entry.file, at: offset, data: append([]byte(nil), unsafe.Slice(at[byte](data), size)...)})
	}
	return code
}

func recordTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	entry := entryOf(file)
	code := function[func(*libc.TLS, uintptr, int64) int32](entry.methods.FxTruncate)(tls, file, size)
	if code == lib.SQLITE_OK && entry.disk != nil {
		entry.disk.add(event{kind: truncated, file: entry.file, at: size})
	}
	return code
}

// recordSync records a sync and the one of the directory that the system's VFS would have made with it, and makes neither: the
// disk that counts is the record.
func recordSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	entry := entryOf(file)
	if entry.disk == nil {
		return lib.SQLITE_OK
	}
	if recorder.syncFails.Load() {
		return lib.SQLITE_IOERR_FSYNC
	}
	entry.disk.add(event{kind: synced, file: entry.file})
	if open := at[lib.TunixFile](file); open.FctrlFlags&lib.UNIXFILE_DIRSYNC != 0 {
		open.FctrlFlags &^= lib.UNIXFILE_DIRSYNC
		entry.disk.add(event{kind: dirSynced})
	}
	return lib.SQLITE_OK
}
