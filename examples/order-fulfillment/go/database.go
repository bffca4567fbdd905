package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	// SQLite without cgo, as the driver "sqlite".
	_ "modernc.org/sqlite"
)

const schema = `
	CREATE TABLE IF NOT EXISTS order_claims (
		order_id TEXT PRIMARY KEY,
		run_id   TEXT NOT NULL
	) STRICT;
	CREATE TABLE IF NOT EXISTS contacts (
		email TEXT PRIMARY KEY,
		name  TEXT NOT NULL
	) STRICT;
	CREATE TABLE IF NOT EXISTS invoices (
		id             TEXT PRIMARY KEY,
		order_id       TEXT NOT NULL,
		email          TEXT NOT NULL REFERENCES contacts,
		amount         INTEGER NOT NULL,
		currency       TEXT NOT NULL,
		payment_intent TEXT NOT NULL
	) STRICT;`

// Database is the shop's own. Its methods may be used by many goroutines.
type Database struct{ sql *sql.DB }

// OpenDatabase opens or makes the database in a file.
func OpenDatabase(ctx context.Context, file string) (*Database, error) {
	// The write-ahead log lets readers go on while one writes; writers wait for each other up to the timeout.
	pragmas := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "foreign_keys(1)"}}
	db, err := sql.Open("sqlite", "file:"+file+"?"+pragmas.Encode())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("making the tables in %s: %w", file, err), db.Close())
	}
	return &Database{db}, nil
}

// Close ends the use of the file.
func (d *Database) Close() error { return d.sql.Close() }

// ClaimOrder claims an order for a run and says which run owns it. The first run gets it; the others learn whose it is.
//
// The owner is a run, not an attempt: when the step is cut off after the row was written, its second attempt finds its own
// run's claim and goes on.
func (d *Database) ClaimOrder(ctx context.Context, orderID, runID string) (owner string, err error) {
	const claim = "INSERT INTO order_claims (order_id, run_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
	if _, err := d.sql.ExecContext(ctx, claim, orderID, runID); err != nil {
		return "", fmt.Errorf("claiming order %s: %w", orderID, err)
	}
	err = d.sql.QueryRowContext(ctx, "SELECT run_id FROM order_claims WHERE order_id = ?", orderID).Scan(&owner)
	if err != nil {
		return "", fmt.Errorf("reading the claim of order %s: %w", orderID, err)
	}
	return owner, nil
}

// SaveContact adds a contact or updates it: the email address says which contact it is.
func (d *Database) SaveContact(ctx context.Context, email, name string) error {
	const upsert = `
		INSERT INTO contacts (email, name) VALUES (?, ?)
		ON CONFLICT (email) DO UPDATE SET name = excluded.name`
	if _, err := d.sql.ExecContext(ctx, upsert, email, name); err != nil {
		return fmt.Errorf("saving contact %s: %w", email, err)
	}
	return nil
}

// Invoice is one invoice.
type Invoice struct {
	ID            string `json:"id"`
	OrderID       string `json:"orderId"`
	Email         string `json:"email"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	PaymentIntent string `json:"paymentIntent"`
}

// CreateInvoice adds an invoice. Its id was drawn in a step of its own, so a second attempt brings the same one, and nothing
// is added.
func (d *Database) CreateInvoice(ctx context.Context, i Invoice) error {
	const insert = `
		INSERT INTO invoices (id, order_id, email, amount, currency, payment_intent) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`
	if _, err := d.sql.ExecContext(ctx, insert, i.ID, i.OrderID, i.Email, i.Amount, i.Currency, i.PaymentIntent); err != nil {
		return fmt.Errorf("creating invoice %s: %w", i.ID, err)
	}
	return nil
}

const selectInvoices = "SELECT id, order_id, email, amount, currency, payment_intent FROM invoices "

// columns are where a row of selectInvoices is scanned to.
func (i *Invoice) columns() []any {
	return []any{&i.ID, &i.OrderID, &i.Email, &i.Amount, &i.Currency, &i.PaymentIntent}
}

// FindInvoice is the invoice of an order.
func (d *Database) FindInvoice(ctx context.Context, orderID string) (Invoice, error) {
	var i Invoice
	err := d.sql.QueryRowContext(ctx, selectInvoices+"WHERE order_id = ?", orderID).Scan(i.columns()...)
	if err != nil {
		return Invoice{}, fmt.Errorf("finding the invoice of order %s: %w", orderID, err)
	}
	return i, nil
}

// Invoices are all invoices, by order.
func (d *Database) Invoices(ctx context.Context) ([]Invoice, error) {
	return list(ctx, d, selectInvoices+"ORDER BY order_id", (*Invoice).columns)
}

// Contact is one contact.
type Contact struct {
	Email string `json:"email"`
	Name  string `json:"name"`
}

func (c *Contact) columns() []any { return []any{&c.Email, &c.Name} }

// Contacts are all contacts, by email address.
func (d *Database) Contacts(ctx context.Context) ([]Contact, error) {
	return list(ctx, d, "SELECT email, name FROM contacts ORDER BY email", (*Contact).columns)
}

// list reads all rows of a query.
func list[Row any](ctx context.Context, d *Database, query string, columns func(*Row) []any) (found []Row, err error) {
	rows, err := d.sql.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	found = []Row{}
	for rows.Next() {
		var row Row
		if err := rows.Scan(columns(&row)...); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}
