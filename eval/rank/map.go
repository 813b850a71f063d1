package rank

func init() {
	// AP = 1/R Σ_m m / r_m, over the whole gallery.
	register("map", "average precision over the whole gallery", func(ranks []int32, _ int) float64 {
		return precisionSum(ranks) / float64(len(ranks))
	})
}
