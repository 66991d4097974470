// Package provenance decides about a call by where its arguments came from, and holds what that takes: profiles of operations, evidence of what
// results showed, the person's request, and sealed plans. It is pure: no clock, no network, no state of its own, and nothing outside the standard
// library but package flow, whose labels and operations it judges by.
//
// This package is experimental: its names and its rules may change with any version. Package flow is stable.
//
// # One function
//
// [JudgeCall] decides about a call, and nothing else does. Its rule of labels is [flow.Judge], which also speaks for calls whose arguments are
// not known yet.
//
// A session that holds [flow.Untrusted] content may have been told what to do by it. So JudgeCall looks where each critical argument of a call
// came from: a [Profile] says what the arguments of an operation are for and how far its results can be trusted, [Words] are what the person
// asked for, [Observe] takes from each result what can be looked up later, and [Evidence] holds it. Who may vouch for a value is [Voucher]'s
// list; where nobody does, a person is asked. With a profile that tells the roles, a refusal by labels is narrowed in the same way.
//
// Evidence only ever vouches: whatever is missing from it, or came out of untrusted text, permits nothing.
//
// # Sealed plans
//
// A [Sealed] plan is one that was approved, with what was done of it. [Sealed.Follow] finds the step that a call follows; a plan that was sealed
// while the session was clean, or that a person decided, vouches for what its steps fix. [OffPlan] and [UnaskedFor] say what a person is asked
// about although its arguments are vouched for.
//
// # What callers must keep
//
// Names go into structured fields as they are, and so do the values of findings, which may be hostile. In sentences, which a model reads, names
// are shortened and stripped as package flow does it, and no value and no record's own words are in them.
package provenance
