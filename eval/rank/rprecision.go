package rank

func init() {
	register("rp", "R-precision: precision at R, the number of relevant items", func(ranks []int32, _ int) float64 {
		return float64(within(ranks, len(ranks))) / float64(len(ranks))
	})
}
