package registry

import "strings"

// Nearest returns the entry of words that word was most likely meant to be:
// the one with the smallest edit distance, letter case and the separators
// "-" and "_" aside, the earlier one on a tie. It is false when even that one
// takes more than a third of the letters (at least one, at most three) to
// correct, unless one of the two begins with the other.
func Nearest(word string, words []string) (string, bool) {
	best, bestCost := "", -1
	folded := fold(word)
	for _, w := range words {
		candidate := fold(w)
		cost := distance(folded, candidate)
		if !near(folded, candidate, cost) {
			continue
		}
		if bestCost < 0 || cost < bestCost {
			best, bestCost = w, cost
		}
	}
	return best, bestCost >= 0
}

// near decides whether two different spellings are close enough to suggest.
func near(a, b string, cost int) bool {
	short := min(len(a), len(b))
	if short >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
		return true
	}
	return cost <= min(3, max(1, max(len(a), len(b))/3))
}

// fold removes what people mix up without meaning another word.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the insertions, deletions, substitutions and swaps of two
// neighbours that turn a into b (optimal string alignment), in runes.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	older, prev, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			replace := prev[j-1]
			if s[i-1] != t[j-1] {
				replace++
			}
			row[j] = min(prev[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, prev, row = prev, row, older
	}
	return prev[len(t)]
}
