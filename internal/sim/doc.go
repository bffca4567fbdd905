// Package sim plays the whole system in one process, in a time of its own: server nodes over one store, apps made with the Go SDK,
// clients, and the network between them. A seed decides what clients ask for and what goes wrong: messages that are lost, doubled,
// late or reordered, nodes and apps that crash or pause, stores that fail, clocks that step, deploys. After every commit and every
// delivered message the invariants W1 to W10 are checked against a plain record of what was promised; at the end every run must have
// ended, and no wait may be open (W5). It decides nothing about runs, and nothing outside of it is faked but the network, the disk's
// faults and time.
//
// The same seed gives the same run, byte for byte. That rests on three things. Everything happens in a testing/synctest bubble,
// where time stands still while anybody works. Whatever one part does to another (a commit, a read, a message, a body's work)
// takes some nanoseconds that are drawn from the seed and from what it is, never from the order in which things come: so two of
// them hardly ever fall on the same instant, and the seed alone decides which comes first. And crypto/rand is the seed's.
//
// A node that is paused, and a node or an app's process that has died, stop at their boundaries: no message leaves or reaches them
// and no commit of theirs takes effect. What they do in memory in between is seen by nobody.
//
// A seed has several forms, so that seeds keep what they meant when plans learn to draw more. A plain one has only steps with bodies. One of
// waits has, in some workflows, also sleeps, waits for events, child runs, claims, branches, checks and steps at most once; what nothing
// disturbs must then also be done soon: a child that nobody waits for cancelled, an event that fits a wait given to it. A whole one, which
// is what a seed means unless its form is named, has also what happens between a run's end and its final status, and what begins it
// again: undos, handlers, restarts, forced cancellations, replays from a step; and callbacks, workflows that run once, and logs. There
// Z1 and Z2 are checked on every commit: no step of the function starts in a closing, what was noted is undone once, the last first, the
// handler comes after that and only for its ending; a chapter shares no entry, derived key or idempotency key with the one before.
//
// Two nodes live at once only as a node and its successor: a node is paused, taken for dead, and wakes beside the one that took
// over. A seed of nodes is a whole one where two or three share the work (C1, C2, N4), and a swept one is whole too, with one to three nodes
// that drop runs a while after their end: nothing that somebody waits for may go with them, and no key (K3). It lasts for minutes, and has
// schedules too, whose ticks start one run each (D2). In a stale one, of one or two nodes, many reads take up to seconds on their way back, so
// that what was decided by them meets a store that has gone on: the commit must expect what it relies on (N1). A broad one has what plans
// learned later: code that throws beside what its run waits for and asks for its pause, keys with a time, replays with other keys and events,
// and schedules that are paused. In a changing one, of one or two nodes, deploys are many, and more changes with them: steps that are renamed
// say what they were called before (S7), and schedules get another expression or another rule of catching up (D1, D2);
// and clients emit events for later, and make requests with an Idempotency-Key, again and again (K6). In a locked one, of one to three nodes,
// somebody who is no server locks runs: what is to be written of them is refused alone (N3).
// Some bodies kill their process, up to twelve times.
//
// In all of them it is also checked that nothing is done too late or too often. Attempts and pauses are counted by the code that throws
// (S2, promise 13); what is due is done soon while nothing disturbs the nodes, and in its turn (W5); an app has no more calls than it takes; no
// body begins, and none goes on without being told, once its process has heard that it is over (Z1); after a cut starts are recorded, from the
// fifth on bodies run one at a time, and the tenth ends the step or the run (C13); a body has the time of its step, and no more (S6); a replay is as it was asked for (K5, S8);
// and the log of a run that completed lacks no line.
package sim
