package rank

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func evaluate(t *testing.T, queries []Query, list string, o Options) *Report {
	t.Helper()
	report, err := Evaluate(context.Background(), queries, parse(t, list), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestLonePolicies(t *testing.T) {
	queries := []Query{{[]int32{1}, 4}, {nil, 4}, {[]int32{2, 4}, 4}, {nil, 4}}
	skip := evaluate(t, queries, "r@1,mrr", Options{})
	zero := evaluate(t, queries, "r@1,mrr", Options{Lone: Zero})
	if skip.Queries != 4 || skip.Lone != 2 || skip.Counted != 2 || zero.Lone != 2 || zero.Counted != 4 {
		t.Errorf("skip %+v, zero %+v", skip, zero)
	}
	if got, want := skip.Values[0].Mean, (1.0+0)/2; got != want {
		t.Errorf("r@1, lone skipped: %v, want %v", got, want)
	}
	if got, want := skip.Values[1].Mean, (1.0+1.0/2)/2; got != want {
		t.Errorf("mrr, lone skipped: %v, want %v", got, want)
	}
	if got, want := zero.Values[1].Mean, (1.0+0+1.0/2+0)/4; got != want {
		t.Errorf("mrr, lone as zero: %v, want %v", got, want)
	}
	if !reflect.DeepEqual(skip.First, zero.First) {
		t.Errorf("the policy changed the first ranks: %v, %v", skip.First, zero.First)
	}
}

func TestFirstRankQuantiles(t *testing.T) {
	var queries []Query
	for i := range 20 { // first ranks 1 to 20
		queries = append(queries, Query{[]int32{int32(20 - i), 100}, 100})
	}
	report := evaluate(t, queries, "mrr", Options{})
	want := []Quantile{{0.25, 5}, {0.5, 10}, {0.75, 15}, {0.9, 18}, {0.95, 19}, {0.99, 20}} // ⌈q·20⌉
	if !slices.Equal(report.First, want) {
		t.Errorf("%v, want %v", report.First, want)
	}
	one := evaluate(t, queries[:1], "mrr", Options{})
	for _, q := range one.First {
		if q.Rank != 20 {
			t.Errorf("one query: %v", q)
		}
	}
}

func TestEvaluateRefuses(t *testing.T) {
	good := Query{[]int32{1}, 4}
	lone := Query{nil, 4}
	_, err := Evaluate(context.Background(), nil, parse(t, "r@1"), Options{})
	faulttest.Refused(t, err, "no queries")
	for _, policy := range []Lone{Skip, Zero} {
		_, err = Evaluate(context.Background(), []Query{lone, lone}, parse(t, "r@1"), Options{Lone: policy})
		faulttest.Refused(t, err, "all 2 queries are lone")
	}
	_, err = Evaluate(context.Background(), []Query{good}, parse(t, "r@4,p@5"), Options{})
	faulttest.Refused(t, err, "p@5: only 4 candidates")
	for _, n := range []int{-1, MaxBootstrap + 1, math.MaxInt} {
		_, err = Evaluate(context.Background(), []Query{good}, parse(t, "r@1"), Options{Bootstrap: n})
		faulttest.Refused(t, err, "bootstrap: ", "up to 1000000")
	}
	_, err = Evaluate(context.Background(), []Query{good}, parse(t, "r@1"), Options{Lone: "one"})
	faulttest.Refused(t, err, `lone: "one"`)
	for _, ranks := range [][]int32{{0}, {5}, {2, 2}, {3, 1}, {-1}} {
		if _, err := Evaluate(context.Background(), []Query{{ranks, 4}}, parse(t, "r@1"), Options{}); err == nil {
			t.Errorf("ranks %v among 4 candidates were evaluated", ranks)
		}
	}
	if got := evaluate(t, []Query{good}, "r@4,p@4", Options{}).Values[0].Mean; got != 1 {
		t.Errorf("r@K with K = all candidates is %v", got)
	}
}

// TestBootstrapInterval compares with the exact distribution: of n queries
// half of which hit, the mean of a resample is Binomial(n, 1/2)/n, whose
// 2.5 % and 97.5 % points are near 1/2 ± 1.96·sqrt(1/4/n).
func TestBootstrapInterval(t *testing.T) {
	const n = 400
	var queries []Query
	for i := range n {
		queries = append(queries, Query{[]int32{int32(1 + i%2)}, 2})
	}
	o := Options{Bootstrap: 4000, Seed: 1}
	report := evaluate(t, queries, "r@1,r@2,mrr", o)
	half := 1.96 * math.Sqrt(0.25/n) // 0.049
	hit := report.Values[0].Interval
	// One resample's mean moves in steps of 1/400; 4000 resamples put the
	// quantile within about 0.002 of the exact one.
	if math.Abs(hit.Low-(0.5-half)) > 0.006 || math.Abs(hit.High-(0.5+half)) > 0.006 {
		t.Errorf("interval %v, want about [%v, %v]", *hit, 0.5-half, 0.5+half)
	}
	if sure := report.Values[1].Interval; sure.Low != 1 || sure.High != 1 {
		t.Errorf("a metric that is always 1 has the interval %v", *sure)
	}
	// mrr is 1 or 1/2, so an affine function of r@1, resample by resample.
	mrr := report.Values[2].Interval
	if math.Abs(mrr.Low-(1+hit.Low)/2) > 1e-12 || math.Abs(mrr.High-(1+hit.High)/2) > 1e-12 {
		t.Errorf("metrics are resampled apart: %v and %v", *hit, *mrr)
	}
	if again := evaluate(t, queries, "r@1,r@2,mrr", o); !reflect.DeepEqual(again, report) {
		t.Error("one seed gave two intervals")
	}
	if other := evaluate(t, queries, "r@1", Options{Bootstrap: 4000, Seed: 2}); *other.Values[0].Interval == *hit {
		t.Error("two seeds gave one interval to the last bit")
	}
	if none := evaluate(t, queries, "r@1", Options{}); none.Values[0].Interval != nil {
		t.Error("an interval without bootstrap")
	}
}

func TestBootstrapEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	report, err := Evaluate(ctx, make50(), parse(t, "mrr"), Options{Bootstrap: MaxBootstrap})
	if report != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", report, err)
	}
}

func make50() []Query {
	var queries []Query
	for i := range 50 {
		queries = append(queries, Query{[]int32{int32(1 + i%7), 9}, 9})
	}
	return queries
}

func TestBootstrapDoesNotDependOnThreads(t *testing.T) {
	queries := make50()
	o := Options{Bootstrap: 101, Seed: 5}
	want := evaluate(t, queries, "map,mrr", o)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, threads := range []int{1, 3} {
		runtime.GOMAXPROCS(threads)
		if got := evaluate(t, queries, "map,mrr", o); !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads: %v, want %v", threads, got, want)
		}
	}
}

func TestMeanSD(t *testing.T) {
	mean, sd := MeanSD([]float64{1, 2, 6})
	if want := math.Sqrt((4.0 + 1 + 9) / 2); mean != 3 || math.Abs(sd-want) > 1e-15 {
		t.Errorf("%v ± %v, want 3 ± %v", mean, sd, want)
	}
	if mean, sd := MeanSD([]float64{7}); mean != 7 || sd != 0 {
		t.Errorf("one run: %v ± %v", mean, sd)
	}
}
