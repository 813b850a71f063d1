package rank

func init() {
	register("mrr", "reciprocal rank: 1 / rank of the first relevant item", func(ranks []int32, _ int) float64 {
		return 1 / float64(ranks[0])
	})
}
