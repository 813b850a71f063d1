package rank

func init() {
	register("p@K", "precision at K: relevant items among the first K, over K", func(ranks []int32, k int) float64 {
		return float64(within(ranks, k)) / float64(k)
	})
}
