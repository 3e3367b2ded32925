package script

import "github.com/weir-go/weir/store"

// A Verb is what a script does.
type Verb uint8

// The verbs. ConsumeMark, UpToMark and ForceMark also write a marker for each rule whose
// tokens can be refunded.
const (
	Consume Verb = iota
	ConsumeMark
	UpTo // consumes as many tokens as every rule allows, at most the cost
	UpToMark
	Force // consumes past the limits, up to the largest debt
	ForceMark
	Peek
	Renew        // renews leases that are held, and acquires none
	Refund       // refunds the decision of the markers, and deletes them; the cost is 0, or as high as the decision's
	Settle       // makes the cost, which can be 0, the cost of the decision of the markers
	Finish       // Settle, if a cost or an amount is given, and then Release
	FinishRefund // refunds as Refund does, and then releases
	Release      // releases leases
	Pause        // begins a pause
	Resume       // ends a pause
	Reset        // deletes the keys of every rule, if no value is foreign
	Entries      // lists the metadata of one rule

	verbs = iota
)

var suffixes = [verbs]string{"", ".mark", ".upto", ".upto.mark", ".force", ".force.mark", ".peek", ".renew", ".refund", ".settle", ".finish", ".finish.refund", ".release", ".pause", ".resume", ".reset", ".entries"}

// Suffix returns what follows the name of the rules in the name of a script.
func (v Verb) Suffix() string { return suffixes[v] }

// Marks reports whether the script writes markers.
func (v Verb) Marks() bool { return v == ConsumeMark || v == UpToMark || v == ForceMark }

// TakesUpTo reports whether the script may consume less than the cost.
func (v Verb) TakesUpTo() bool { return v == UpTo || v == UpToMark }

// Forces reports whether the script consumes tokens past the limits.
func (v Verb) Forces() bool { return v == Force || v == ForceMark }

// Debts reports whether the script can leave a rule in debt.
func (v Verb) Debts() bool { return v.Forces() || v.Settles() }

// Settles reports whether the script can change the cost of a decision.
func (v Verb) Settles() bool { return v == Settle || v == Finish }

// Finishes reports whether the script ends a decision and its leases.
func (v Verb) Finishes() bool { return v == Finish || v == FinishRefund }

// Decides reports whether the script allows or denies a request.
func (v Verb) Decides() bool { return v <= Renew }

// Markers reports whether the script takes the keys of the markers, which follow the keys
// of the rules.
func (v Verb) Markers() bool { return v.Marks() || v.Adjusts() }

// Adjusts reports whether the script changes what an earlier decision costs.
func (v Verb) Adjusts() bool { return v >= Refund && v <= FinishRefund }

// Generates reports whether the script takes a generation, and the arguments that go with
// it: see ArgGen.
func (v Verb) Generates() bool { return v.Markers() || v.Debts() }

func (v Verb) readOnly() bool { return v == Peek || v == Entries }

// The arguments of a script are the constants of each rule, followed by its Cost or its
// amount if it has one, then the text if it is used, and then the arguments that all rules
// share: cost, wait and time. If the last ones are left out, the defaults are a cost of 1,
// a wait of 0, and the store's clock.
//
// A verb that Generates has other arguments: the cost, the wait, the generation, FIT of
// each marker, and the time, which can be left out. If the verb Debts, ArgDebt replaces
// the wait, and ArgOwnDebt and the ArgUnitDebts follow the generation. If markers have an
// END, ArgLife precedes the FITs. A server allocates more if there are more than eight
// arguments.
//
// If a verb Adjusts, a cost or an amount of Unnamed means that it is not given.
const (
	ArgCost     = iota // tokens
	ArgWait            // microseconds
	ArgNow             // microseconds since the Unix epoch
	ArgGen             // the generation of a decision that writes markers
	ArgOwnDebt         // the largest debt of the rules with a Cost
	ArgUnitDebt        // the largest debt of the first rule that counts a unit
	ArgLife            // how long markers with an END live, at least, in microseconds
	ArgFit             // FIT of the first marker

	ArgDebt = ArgWait // the largest debt of the rules without a Cost
)

// Unnamed is a cost or an amount that is not given.
const Unnamed = -1

// Arg returns the index of arg, for example [ArgCost], in the arguments of v.
func (s *Source) Arg(v Verb, arg int) int {
	at := s.consts
	if s.HasText(v) {
		at++
	}
	if arg <= ArgWait || !v.Generates() {
		return at + arg
	}
	at += ArgWait + 1
	if arg == ArgGen {
		return at
	}
	at++
	if arg == ArgOwnDebt {
		return at
	}
	if v.Debts() {
		if at++; arg == ArgUnitDebt {
			return at
		}
		at += s.units
	}
	if arg == ArgLife {
		return at
	}
	if s.Lives(v) {
		at++
	}
	if arg == ArgNow && v.Markers() {
		at += s.markers
	}
	return at
}

// Lives reports whether the script of v takes ArgLife.
func (s *Source) Lives(v Verb) bool { return (s.units > 0 || s.Bills) && (v.Marks() || v.Settles()) }

// The codes in the reply of a verb that writes markers. If a rule counts a unit and the
// decision had another amount of it, the code is OtherCost plus the number of the rule,
// from 1.
const (
	Replayed  = 1 // the decision was repeated: the reply begins with TOTAL
	OtherCost = 2 // the decision with this ID had another cost: the reply begins with ASKED
)

// TooLittle begins the reply of Refund if the cost is less than the tokens that the
// decision consumed.
const TooLittle = 2

// MarkTag is the tag of a marker. A marker is "i2 GEN HELD TOTAL ASKED FIT" and further
// integers, which are described at MarkGen. If a Settle wrote the marker, its tag is
// SettledTag, and the cell may belong to another cost. If the Settle could not adjust the
// rule, the tag is KeptTag, and TOTAL is what the rule has consumed.
var MarkTag, SettledTag, KeptTag = store.Tag{'i', '2'}, store.Tag{'i', '3'}, store.Tag{'i', '4'}

// IsMark reports whether t is the tag of a marker.
func IsMark(t store.Tag) bool { return t == MarkTag || t == SettledTag || t == KeptTag }

// The integers of a marker.
const (
	MarkGen   = iota // GEN: the generation of the value that the decision wrote
	MarkHeld         // HELD: the number of tokens that a refund can return
	MarkTotal        // TOTAL: the number of tokens that the decision consumed from each rule without a Cost, or from this rule if it counts a unit
	MarkAsked        // ASKED: the cost or the amount that the decision asked for; for a TakeUpTo what it consumed
	MarkFit          // FIT: see FitBits

	// MarkHead is the number of these integers. Further integers follow: for a rule with
	// a cell, the cell just after the decision and the first integer of the note. The
	// decision ends with that cell. If that time depends on constants, and FIT has
	// changed, the decision ends with its marker. For a Step, they are the three integers
	// of contract.StepRefunder.Mark.
	//
	// The last integer is END, when the marker ends. For a rule with a cell, END can be
	// 0: the marker then ends with the decision. It is above 0 if the rule counts a unit,
	// or if Source.Bills is true. If the decision ends before END, its marker holds no
	// tokens, but says what it has consumed.
	MarkHead
)

// FitBits is the number of bits of FIT that must be the same for a refund: a hash of the
// constants in Rule.Bound, and in the last bit, whether the rule has a Cost. If the
// rule's tokens can be reserved, a hash of its capacity follows, because the turn of a
// decision is an estimate under another capacity.
const FitBits = 33

// MarkInts returns the number of integers of a marker.
func (r *Rule) MarkInts() int {
	if r.Step != nil {
		return MarkHead + 4
	}
	return MarkHead + len(r.Cell) + min(len(r.Note), 1) + 1
}
