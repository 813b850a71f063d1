package rank

func init() {
	register("rp", "R-precision: relevant items among the first R, over R", func(ranks []int32, _ int) float64 {
		return float64(within(ranks, len(ranks))) / float64(len(ranks))
	})
}
