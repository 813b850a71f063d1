package rank

func init() {
	register("r@K", "recall at K: 1 if a relevant item is among the first K", func(ranks []int32, k int) float64 {
		if int(ranks[0]) <= k {
			return 1
		}
		return 0
	})
}
