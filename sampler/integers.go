package sampler

import "slices"

// cut divides rows into batches of size; the last one may be smaller. No batch
// can grow into the next one.
func cut(rows []int, size int) [][]int {
	return slices.Collect(slices.Chunk(rows, size))
}

// count returns 0, 1, …, n-1.
func count(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
