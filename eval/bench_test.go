package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"roadmap/pkg/rng"
)

// largeVariable is the environment variable that has BenchmarkRows evaluate
// 450,000 rows too: a file of 0.9 GB, and minutes.
const largeVariable = "ROADMAP_BENCH_LARGE"

// BenchmarkRows shows how time and memory grow with the rows: 512 dimensions in
// a mapped file, all metrics, in a process of its own. 60,502 rows are in
// the classes of Stanford Online Products' test split, 136,093 in classes of 2 to 900 as
// iNaturalist's, which are 150 relevant items a query; the others in classes of 2 to 8.
//
// Where ROADMAP_PYTHON names a Python with the peers, the 60,502 are evaluated by
// AccuracyCalculator over faiss-cpu as well, and stand beside two bare matrix products.
func BenchmarkRows(b *testing.B) {
	few := func(r *rand.Rand) int { return 2 + r.IntN(7) }
	tailed := func(r *rand.Rand) int { return int(min(900, max(2, math.Exp(3.3+1.1*r.NormFloat64())))) }
	for _, set := range []struct {
		rows    int
		classes func(b *testing.B) []class
	}{
		{15000, func(*testing.B) []class { return drawn(15000, few) }},
		{60502, func(b *testing.B) []class { return products(b) }},
		{136093, func(*testing.B) []class { return drawn(136093, tailed) }},
		{450000, func(*testing.B) []class { return drawn(450000, few) }},
	} {
		b.Run(strconv.Itoa(set.rows), func(b *testing.B) {
			if set.rows == 450000 && os.Getenv(largeVariable) == "" {
				b.Skipf("takes minutes; %s=1 has it run", largeVariable)
			}
			dir := b.TempDir()
			writeRows(b, dir, set.classes(b))
			var seconds float64
			var peak int64
			for b.Loop() {
				m := evaluateApart(b, dir)
				seconds += m.Seconds
				peak = max(peak, m.Peak)
			}
			seconds /= float64(b.N)
			b.ReportMetric(0, "ns/op") // the process's start would be in it
			b.ReportMetric(seconds, "s")
			b.ReportMetric(seconds/float64(set.rows)/float64(set.rows)*1e9, "ns/pair")
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
			if python := os.Getenv(pythonVariable); python != "" && set.rows == 60502 {
				peer := evaluateByPeer(b, python, dir)
				b.ReportMetric(peer.Seconds, "faiss-s")
				b.ReportMetric(float64(peer.Peak)/1e6, "faiss-peak-MB")
				b.ReportMetric(peer.Float32, "float32-product-s")
				b.ReportMetric(peer.BFloat, "bfloat16-product-s")
			}
		})
	}
}

// drawn is so many rows in classes of drawn sizes, in 12 categories.
func drawn(rows int, size func(r *rand.Rand) int) []class {
	r := rng.New(9, uint64(rows))
	var all []class
	for rows > 0 {
		c := class{int64(len(all)), fmt.Sprint(r.IntN(12)), min(rows, size(r))}
		all = append(all, c)
		rows -= c.rows
	}
	return all
}
