package sqlite_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// sectorBytes is the unit that a disk writes whole or not at all. SQLite counts on no larger one.
const sectorBytes = 512

// disk is the record of all that SQLite asked of one directory, in order, and of what the store acknowledged in between. What
// the directory held before is base, and counts as synced.
type disk struct {
	base map[string][]byte

	mu     sync.Mutex // guards what follows
	events []event
	names  map[string]int // the file that each name stands for now
	files  int            // how many there have been: a file that is made anew is another one
}

type eventKind int

const (
	wrote eventKind = iota
	truncated
	synced
	created
	removed
	dirSynced
	acknowledged
)

// event is one thing that happened. Of a write, at is where; of a truncation, the new size.
type event struct {
	kind eventKind
	file int
	name string
	at   int64
	data []byte
}

func newDisk(base map[string][]byte) *disk {
	d := &disk{base: base, names: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		d.names[name] = d.files
		d.files++
	}
	return d
}

func (d *disk) add(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// opened gives the file of that name, and records that it is a new one.
func (d *disk) opened(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	file, ok := d.names[name]
	if !ok {
		file = d.files
		d.files++
		d.names[name] = file
		d.events = append(d.events, event{kind: created, file: file, name: name})
	}
	return file
}

func (d *disk) removed(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file, ok := d.names[name]; ok {
		delete(d.names, name)
		d.events = append(d.events, event{kind: removed, file: file, name: name})
	}
}

// syncs counts how often a file was synced while batches were committed.
func (d *disk) syncs(name string) int {
	n, passed := 0, 0 // passed: since the last acknowledgement, which may be the last one
	begun := false
	for _, e := range d.events {
		switch {
		case e.kind == acknowledged:
			n, passed, begun = n+passed, 0, true
		case begun && e.kind == synced && e.file == d.names[name]:
			passed++
		}
	}
	return n
}

// platter is what is certainly on the disk at some point of its record, and what may be there besides.
type platter struct {
	disk         *disk
	now          int // so many events have happened
	acknowledged int
	inFlight     bool // something was written since
	files        map[int]*platterFile
	names        map[string]int
	pending      []event // of names, since the directory was synced
}

type platterFile struct {
	synced  []byte
	pending []event // writes and truncations since
}

// spin begins with what the directory held before the record.
func (d *disk) spin() *platter {
	p := &platter{disk: d, files: map[int]*platterFile{}, names: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(d.base)) {
		p.names[name] = len(p.files)
		p.files[len(p.files)] = &platterFile{synced: slices.Clone(d.base[name])}
	}
	return p
}

// forward lets the record happen up to its n-th event.
func (p *platter) forward(n int) {
	for ; p.now < n; p.now++ {
		e := p.disk.events[p.now]
		switch e.kind {
		case wrote, truncated:
			p.files[e.file].pending = append(p.files[e.file].pending, e)
			p.inFlight = true
		case synced:
			f := p.files[e.file]
			for _, e := range f.pending {
				f.synced = e.apply(f.synced)
			}
			f.pending = nil
		case created:
			p.files[e.file] = &platterFile{}
			p.pending = append(p.pending, e)
		case removed:
			p.pending = append(p.pending, e)
		case dirSynced:
			for _, e := range p.pending {
				e.rename(p.names)
			}
			p.pending = nil
		case acknowledged:
			p.acknowledged++
			p.inFlight = false
		}
	}
}

func (e event) apply(content []byte) []byte {
	if e.kind == truncated {
		return resize(content, e.at)
	}
	content = resize(content, max(int64(len(content)), e.at+int64(len(e.data))))
	copy(content[e.at:], e.data)
	return content
}

func (e event) rename(names map[string]int) {
	if e.kind == created {
		names[e.name] = e.file
	} else {
		delete(names, e.name)
	}
}

func resize(content []byte, size int64) []byte {
	if int64(len(content)) >= size {
		return content[:size]
	}
	return append(content, make([]byte, size-int64(len(content)))...)
}

// cut draws what the directory may hold when the power goes now: all that is synced, and of the rest whatever the disk got to:
// nothing, everything, or any of its sectors and names in any order. Where a file grew and its content didn't arrive there may be
// zeros or anything else.
func (p *platter) cut(rng *rand.Rand) map[string][]byte {
	luck := []float64{0, 0, 1, 0.1, 0.5, 0.9, rng.Float64()}[rng.IntN(7)]
	lucky := func() bool { return rng.Float64() < luck }
	garbage := rng.IntN(3) == 0
	names := maps.Clone(p.names)
	for _, e := range p.pending {
		if lucky() {
			e.rename(names)
		}
	}
	left := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := p.files[names[name]]
		content := bytes.Clone(f.synced)
		for _, e := range f.pending {
			content = e.tear(content, lucky, garbage, rng)
		}
		left[name] = content
	}
	return left
}

// tear applies what the disk got to of a write or a truncation.
func (e event) tear(content []byte, lucky func() bool, garbage bool, rng *rand.Rand) []byte {
	if e.kind == truncated {
		if lucky() {
			return resize(content, e.at)
		}
		return content
	}
	size, end := int64(len(content)), e.at+int64(len(e.data))
	if end > size && lucky() { // the file's new size is on disk, whatever becomes of its content
		content = resize(content, end)
		for i := size; garbage && i < end; i++ {
			content[i] = byte(rng.Uint32())
		}
	}
	for at := e.at; at < end; {
		next := min(at/sectorBytes*sectorBytes+sectorBytes, end)
		if lucky() {
			content = event{kind: wrote, at: at, data: e.data[at-e.at : next-e.at]}.apply(content)
		}
		at = next
	}
	return content
}

// unsynced tells whether anything may be missing if the power goes now.
func (p *platter) unsynced() bool {
	for _, f := range p.files {
		if len(f.pending) > 0 {
			return true
		}
	}
	return len(p.pending) > 0
}
