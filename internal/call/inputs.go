package call

import "slices"

// Inputs are what a call reads of its session's workspace besides its arguments. A person who answers for the call answers for them, too.
type Inputs struct {
	Files     []InputFile  `json:"files"`               // those that the arguments name, by path
	Workspace *InputFolder `json:"workspace,omitempty"` // the whole workspace, where the call can run or read any of it; nil: it can't
}

// InputFile is one file of the workspace.
type InputFile struct {
	Path   string `json:"path"` // hostile
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// InputFolder is a folder with all that is in it.
type InputFolder struct {
	Entries int    `json:"entries"` // files, folders and links
	Size    int64  `json:"size"`    // of all files
	SHA256  string `json:"sha256"`  // of the names, kinds, modes and contents
}

// Same reports whether both are the same files with the same contents. nil is the same as nil alone.
func (in *Inputs) Same(other *Inputs) bool {
	if in == nil || other == nil {
		return in == other
	}
	if in.Workspace == nil || other.Workspace == nil {
		return in.Workspace == other.Workspace && slices.Equal(in.Files, other.Files)
	}
	return *in.Workspace == *other.Workspace && slices.Equal(in.Files, other.Files)
}
