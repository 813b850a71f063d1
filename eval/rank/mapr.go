package rank

func init() {
	// AP@R = 1/R Σ_{r_m <= R} m / r_m (Musgrave et al. 2020, section 3.2).
	register("map@r", "average precision at R, the number of relevant items (Musgrave et al. 2020)", func(ranks []int32, _ int) float64 {
		return precisionSum(ranks[:within(ranks, len(ranks))]) / float64(len(ranks))
	})
}
