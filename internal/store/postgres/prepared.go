package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Parsing and planning a batch's statements costs the database more than carrying them out for a few runs. A connection that is the
// server's own process from end to end keeps them prepared; where a pooler stands between, they go out unnamed as ever, since its next
// transaction may be on another of its connections.

// often are the statements that are carried out again and again, and that one plan serves whatever their parameters are; see
// TestABatchReadsNoTableWhole and TestAPlanThatIsKeptReadsNoTableWhole. Those of lists are not among them: which of their conditions count
// depends on the parameters.
var often = []string{
	sqlBounds,
	sqlLockRuns, sqlLockKeys, sqlLockCursors, sqlDrawSeqs, sqlDrawWaits, sqlGatherSteps, sqlGatherAttempts, sqlGatherOpenAttempts, sqlGatherWaits,
	sqlGatherWaitsOfRuns, sqlGatherInvokes, sqlGatherUses, sqlGatherEvents, sqlLastEvent, sqlLockLastEvent,
	sqlInsertRuns, sqlUpdateRuns, sqlUpdateHeads, sqlInsertValues, sqlUpdateValues, sqlInsertSteps, sqlPutAttempts, sqlDeleteAttempts,
	sqlInsertWaits, sqlMarkParents, sqlMarkInvokes, sqlMarkPosted, sqlUpdateWaits, sqlInsertWaitEvents, sqlDeleteWaits, sqlDeleteWaitEvents, sqlInsertUses, sqlDeleteUses, sqlInsertCursors, sqlUpdateCursors,
	sqlPutNodes, sqlInsertEvents, sqlUpdateLastEvent, sqlInsertKeys, sqlUpdateKeys, sqlDeleteKeysOfScopes,
	sqlSelectRun, sqlSelectRecord, sqlSelectState, sqlSelectEntries, sqlSelectAttempts, sqlWaitsOfRun, sqlWaitsUnlooked, sqlWaitsOfKin, sqlWaitsFulfilled, sqlSelectKeyBeside,
	sqlSelectTimers, sqlSelectNextTimer, sqlSelectReady, sqlSelectPosition, sqlNextDue,
	sqlSelectInCall, sqlSelectCallCounts, sqlSelectHeads, sqlSelectNodes, sqlSelectClock,
}

// preparedKey is where a connection has the names of the statements that it keeps.
const preparedKey = "nelkap"

// prepare prepares what is carried out often, if the connection leads to one process of the server for as long as it lives: then the
// process that the server speaks of is the one that it announced itself as. A pooler announces itself. It is bounded by itself: the pool
// gives it no deadline, and a server that falls silent now would keep the connection's place.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	c, process := conn.PgConn(), uint32(0)
	b := &batch{}
	b.add(sqlSelectProcess, nil, func(r *scanner) error { process = uint32(r.int()); return nil })
	if err := b.run(ctx, c); err != nil {
		return fmt.Errorf("looking who answers: %w", err)
	}
	if process != c.PID() {
		return nil
	}
	b = &batch{}
	b.add(sqlPlanning, nil, nil)
	if err := b.run(ctx, c); err != nil {
		return fmt.Errorf("choosing how statements are planned: %w", err)
	}
	names := make(map[string]string, len(often))
	pipeline := c.StartPipeline(ctx)
	for i, statement := range often {
		names[statement] = "n" + strconv.Itoa(i)
		pipeline.SendPrepare(names[statement], statement, nil)
	}
	err := pipeline.Sync()
	for range often {
		if err == nil {
			_, err = pipeline.GetResults()
		}
	}
	if failure := pipeline.Close(); err == nil {
		err = failure
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !c.IsClosed() {
		return nil // the schema is not there yet, or not this version's: the connections after the migration keep them
	}
	if err != nil {
		return fmt.Errorf("preparing statements: %w", err)
	}
	c.CustomData()[preparedKey] = names
	return nil
}

// preparedOn are the names of the statements that a connection keeps; nil: none.
func preparedOn(conn *pgconn.PgConn) map[string]string {
	names, _ := conn.CustomData()[preparedKey].(map[string]string)
	return names
}
