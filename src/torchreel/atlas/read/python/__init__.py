"""Python texts -> what they say by themselves: by `ast`, and by tree-sitter where that refuses."""
