package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// partition makes list_eval_partition.txt of the published lists, in which
// queries and gallery are one: 14,218 images become queries, at least one of
// every item, and the rest the gallery, at least one too.
func partition(t *testing.T) []byte {
	t.Helper()
	var list strings.Builder
	fmt.Fprintln(&list, 25882+26830)
	fmt.Fprintln(&list, "image_name item_id evaluation_status")
	lines := func(name string) []string {
		content, err := os.ReadFile(datatest.Shared(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(content))
	}
	for _, line := range lines("inshop-lists/deep_fashion_train.csv") {
		item, name, _ := strings.Cut(line, ",")
		fmt.Fprintf(&list, "%-80s %s train\n", name, item)
	}
	test := lines("inshop-lists/deep_fashion_test.csv")
	came := map[string]int{}
	queries := 3985
	for _, line := range test {
		item, name, _ := strings.Cut(line, ",")
		came[item]++
		status := "gallery"
		if came[item] == 1 {
			status = "query"
		} else if came[item] > 2 && queries < 14218 {
			status = "query"
			queries++
		}
		fmt.Fprintf(&list, "%-80s %s %s\n", name, item, status)
	}
	return []byte(list.String())
}

func TestInShopOfficialCounts(t *testing.T) {
	list := partition(t)
	for _, layout := range []string{"", "Eval/"} {
		root := write(t, map[string][]byte{layout + "list_eval_partition.txt": list})
		s := &InShop{Official{Root: root, OnError: Fail}}
		splits := checkOfficial(t, s)
		checkSplits(t, s)
		test := splits[Test]
		if q, g := len(test.Queries()), len(test.Gallery()); q != 14218 || g != 12612 {
			t.Errorf("%d queries, %d in the gallery", q, g)
		}
		if levels := test.Levels(); len(levels) != 2 || len(levels[1].Names) != 23 {
			t.Errorf("levels %v", levels)
		}
	}
}

func TestInShopImages(t *testing.T) {
	list := []byte("3\nimage_name item_id evaluation_status\n" +
		"img/WOMEN/Dresses/id_1/01_1_front.jpg id_1 train\nimg/MEN/Denim/id_2/02_1_front.jpg  id_2   query\nimg/MEN/Denim/id_2/02_2_side.jpg id_2 gallery\n")
	images := map[string][]byte{
		"img/WOMEN/Dresses/id_1/01_1_front.jpg": pngOf(t, picture(5, 5, 1)),
		"img/MEN/Denim/id_2/02_1_front.jpg":     pngOf(t, picture(5, 5, 2)),
		"img/MEN/Denim/id_2/02_2_side.jpg":      pngOf(t, picture(5, 5, 3)),
	}
	packed := write(t, map[string][]byte{"Eval/list_eval_partition.txt": list, "Img/readme.txt": nil})
	pack(t, filepath.Join(packed, "Img", "img.zip"), images)
	flat := map[string][]byte{"list_eval_partition.txt": list}
	nested := map[string][]byte{"Eval/list_eval_partition.txt": list}
	for name, content := range images {
		flat[name], nested["Img/"+name] = content, content
	}
	for _, root := range []string{packed, write(t, flat), write(t, nested)} {
		d := open(t, &InShop{Official{Root: root, OnError: Fail}}, Test)
		shows(t, &d.Items[0], picture(5, 5, 2))
		shows(t, &d.Items[1], picture(5, 5, 3))
		if d.Items[0].Category != "MEN/Denim" || d.Items[0].Role != QueryOnly || d.Items[1].Role != GalleryOnly {
			t.Errorf("%+v", d.Items)
		}
	}
	for line, says := range map[string]string{
		"img/MEN/Denim/id_2/02_1_front.jpg id_2 validation": `"validation"`,
		"img/02_1_front.jpg id_2 query":                     "no path of the form",
		"img/MEN/Denim/id_2/02_1_front.jpg id_2":            "2 fields where 3 are expected",
	} {
		root := write(t, map[string][]byte{"list_eval_partition.txt": []byte("1\nheader\n" + line + "\n")})
		_, err := (&InShop{Official{Root: root, OnError: Fail}}).Open(Test)
		faulttest.Refused(t, err, says, "list_eval_partition.txt:3:")
	}
}
