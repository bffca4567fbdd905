// Package archtest holds the house rules that a machine can check, as tests: who may import whom, how large things may
// grow, which words are used. CONTRIBUTING.md states them; a failure here names the rule's reason, so that whoever breaks
// one can judge whether the code or the rule is wrong. Nothing imports this package.
//
// The tests read source files and never build them, so they run in a second and also where the code does not compile.
package archtest
