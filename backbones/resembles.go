package backbones

import (
	"fmt"
	"strings"

	"roadmap/pkg/tensorio"
)

// resembles names the network that a file's tensors look like, by the names that
// torchvision, timm and others give them; "" for one that is not known here.
func resembles(entries []tensorio.Entry, prefix string) string {
	shapes := make(map[string][]int, len(entries))
	for _, e := range entries {
		shapes[strings.TrimPrefix(e.Name, prefix)] = e.Shape
	}
	has := func(name string) bool { _, there := shapes[name]; return there }
	// count is how many of a stage's blocks there are.
	count := func(format string) int {
		n := 0
		for has(fmt.Sprintf(format, n)) {
			n++
		}
		return n
	}
	switch {
	case has("layer1.0.conv1.weight"):
		return resembledResNet(has("layer1.0.conv3.weight"), count("layer2.%d.conv1.weight"), count("layer3.%d.conv1.weight"))
	case has("blocks.0.attn.qkv.weight"):
		return resembledViT(shapes["blocks.0.attn.qkv.weight"], shapes["patch_embed.proj.weight"], has("dist_token"))
	}
	for name, network := range map[string]string{
		"features.0.weight": "a VGG or AlexNet of torchvision", "conv_stem.weight": "an EfficientNet of timm", "stages.0.blocks.0.conv_dw.weight": "a ConvNeXt of timm",
		"encoder.layers.encoder_layer_0.ln_1.weight": "a vision transformer of torchvision", "vit.embeddings.cls_token": "a vision transformer of transformers",
		"visual.conv1.weight": "a CLIP model", "features.conv0.weight": "a DenseNet of torchvision", "Conv2d_1a_3x3.conv.weight": "an Inception of torchvision",
		"blocks.0.conv.weight": "convnet",
	} {
		if has(name) {
			return network
		}
	}
	return ""
}

func resembledResNet(bottlenecks bool, second, third int) string {
	switch {
	case !bottlenecks && third == 2:
		return "resnet18"
	case !bottlenecks && third == 6:
		return "resnet34"
	case bottlenecks && second == 4 && third == 6:
		return "resnet50"
	case bottlenecks && second == 4 && third == 23:
		return "resnet101"
	case bottlenecks && second == 8 && third == 36:
		return "resnet152"
	}
	return "a residual network"
}

// resembledViT goes by the width, which is the second size of qkv, and the patch,
// the last one of the first convolution.
func resembledViT(qkv, patch []int, distilled bool) string {
	sizes := map[int]string{192: "tiny", 384: "small", 768: "base", 1024: "large"}
	if len(qkv) != 2 || len(patch) != 4 || sizes[qkv[1]] == "" {
		return "a vision transformer"
	}
	name := fmt.Sprintf("vit_%s_patch%d", sizes[qkv[1]], patch[3])
	if distilled {
		name = fmt.Sprintf("deit_%s_distilled_patch%d", sizes[qkv[1]], patch[3])
	}
	return "one of " + name + "_…"
}
