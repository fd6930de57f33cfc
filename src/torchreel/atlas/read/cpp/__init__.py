"""C++ texts -> what they say by themselves: by regular expressions and tree-sitter."""
