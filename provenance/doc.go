// Package provenance decides about a call by where its arguments came from. It holds the profiles of operations, the evidence that results gave,
// the person's request and the sealed plans. It is pure: no clock, no network, no state of its own, and no dependencies but the standard library,
// the normal forms of golang.org/x/text, and package flow, whose labels and operations it judges by.
//
// This package is experimental: its names and its rules may change with any version. Package flow is stable.
//
// # One function
//
// [JudgeCall] alone decides about a call. Its rule of labels is [flow.Judge], which also answers for calls whose arguments are not known yet.
//
// Content from outside may have told the agent what to do. So in a session that holds [flow.Untrusted], JudgeCall finds out where each critical
// argument of a call came from: a [Profile] says what the arguments of an operation are for and how far its results can be trusted, [Request] is the
// person's request, [Observe] takes the values out of each result, and [Evidence] keeps them. A value is confirmed if one of the sources in the
// list of [Confirmation] has it. A person is asked about every other one. If the profile gives the arguments roles, a refusal by labels is narrowed in
// the same way.
//
// Evidence can only confirm. Nothing is permitted because evidence is missing or because it came from untrusted text.
//
// # Sealed plans
//
// A [SealedPlan] is an approved plan with the calls that were made for it. [SealedPlan.Follow] finds the step that a call follows. If the plan was
// sealed while the session was clean, or if a person approved it, it confirms what its steps fix. [OffPlan] and [UnaskedFor] find the calls that a
// person is asked about although their arguments are confirmed.
//
// # What callers must keep
//
// Structured fields hold names, and the values of findings, unchanged: they may be hostile. Sentences are for a model to read: names in them are
// shortened and stripped as in package flow, and they hold no value and no text of a record.
package provenance
