package daemon

import (
	"net/http"

	"connectrpc.com/connect"

	v1 "skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/daemon/door"
	"skep.dev/skep/internal/daemon/greeting"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/daemon/reaching"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/daemon/upgrade"
	"skep.dev/skep/internal/daemon/wire"
)

// call is one line of the API: what it is called, who may, what does it.
type call struct {
	procedure string
	may       peer.May
	handler   http.Handler
}

// calls is the whole API. What is not here does not exist. To add a call: write
// it in api/skep/v1/skep.proto, run make generate, add its line here.
func (d *Daemon) calls() []call {
	o, owner := wire.Options(), peer.OneOf(d.Owners)
	g := greeting.Greeting{Version: d.Version, Commit: d.Commit, State: d.State, Instance: d.instance, Fault: d.Fault}
	u := &upgrade.Programs{Worker: d.replaceWorker, Skepd: d.succeed, Boxes: d.replaceBoxes, Log: d.Log}
	reach := &reaching.Reaching{Find: d.idOf, Cell: d.reached, Note: d.noted, Desk: d.desk}
	s := &secrets.Refresher{Of: d.secretsOf, Desk: d.desk}
	return []call{
		{v1.SkepVersionProcedure, owner, connect.NewUnaryHandler(v1.SkepVersionProcedure, g.Answer, o...)},
		{v1.SkepRunProcedure, owner, g.Check(connect.NewServerStreamHandler(v1.SkepRunProcedure, d.run, o...))},
		{v1.SkepFollowProcedure, owner, connect.NewServerStreamHandler(v1.SkepFollowProcedure, d.follow, o...)},
		{v1.SkepUpgradeProcedure, owner, connect.NewUnaryHandler(v1.SkepUpgradeProcedure, u.Upgrade, o...)},
		{v1.SkepListProcedure, owner, connect.NewUnaryHandler(v1.SkepListProcedure, d.reading.List, o...)},
		{v1.SkepGetProcedure, owner, connect.NewUnaryHandler(v1.SkepGetProcedure, d.reading.Get, o...)},
		{v1.SkepStopProcedure, owner, connect.NewUnaryHandler(v1.SkepStopProcedure, d.stopCell, o...)},
		{v1.SkepLogsProcedure, owner, door.Yield(d.reading.Leaving, connect.NewServerStreamHandler(v1.SkepLogsProcedure, d.reading.Logs, o...))},
		{v1.SkepAttachProcedure, owner, connect.NewUnaryHandler(v1.SkepAttachProcedure, reach.Attach, o...)},
		{v1.SkepForwardProcedure, owner, connect.NewUnaryHandler(v1.SkepForwardProcedure, reach.Forward, o...)},
		{v1.SkepDiffProcedure, owner, connect.NewServerStreamHandler(v1.SkepDiffProcedure, d.changes.Diff, o...)},
		{v1.SkepMergePlanProcedure, owner, connect.NewServerStreamHandler(v1.SkepMergePlanProcedure, d.changes.MergePlan, o...)},
		{v1.SkepMergeCommitProcedure, owner, connect.NewUnaryHandler(v1.SkepMergeCommitProcedure, d.changes.MergeCommit, o...)},
		{v1.SkepMergeAbortProcedure, owner, connect.NewUnaryHandler(v1.SkepMergeAbortProcedure, d.changes.MergeAbort, o...)},
		{v1.SkepMergeUndoProcedure, owner, connect.NewUnaryHandler(v1.SkepMergeUndoProcedure, d.changes.MergeUndo, o...)},
		{v1.SkepRefreshProcedure, owner, connect.NewUnaryHandler(v1.SkepRefreshProcedure, s.Refresh, o...)},
		{v1.SkepListApprovalsProcedure, owner, connect.NewUnaryHandler(v1.SkepListApprovalsProcedure, d.asked.List, o...)},
		{v1.SkepDecideApprovalProcedure, owner, connect.NewUnaryHandler(v1.SkepDecideApprovalProcedure, d.asked.Decide, o...)},
		{v1.SkepRevokeApprovalProcedure, owner, connect.NewUnaryHandler(v1.SkepRevokeApprovalProcedure, d.asked.Revoke, o...)},
		{v1.SkepDropProcedure, owner, connect.NewUnaryHandler(v1.SkepDropProcedure, d.changes.Drop, o...)},
		{v1.SkepLedgerReadProcedure, owner, door.Yield(d.reading.Leaving, connect.NewServerStreamHandler(v1.SkepLedgerReadProcedure, d.reading.LedgerRead, o...))},
		{v1.SkepLedgerSealProcedure, owner, connect.NewUnaryHandler(v1.SkepLedgerSealProcedure, d.record.Sealed, o...)},
		{v1.SkepExplainProcedure, owner, connect.NewUnaryHandler(v1.SkepExplainProcedure, d.reading.Explain, o...)},
		{v1.SkepCheckProcedure, owner, connect.NewUnaryHandler(v1.SkepCheckProcedure, d.advice.Check, o...)},
		{v1.SkepDoctorProcedure, owner, connect.NewUnaryHandler(v1.SkepDoctorProcedure, d.advice.Doctor, o...)},
	}
}

// handler serves exactly the table, and what guests add.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	for _, c := range d.calls() {
		mux.Handle(c.procedure, c.may.Check(c.handler))
	}
	d.guests.Mount(mux, peer.OneOf(d.Owners)) // what a connector calls
	return mux
}
