package call

import (
	"encoding/json"
	"slices"
)

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

// maxRecorded bounds the files that a record names, in bytes as it has them.
const maxRecorded = 8 << 10

// RecordedInputs are inputs as an entry of the log has them.
type RecordedInputs struct {
	Files     []InputFile  `json:"files"`                // the first of them, as many as there is room for
	More      int          `json:"more_files,omitempty"` // how many there are beyond these
	Workspace *InputFolder `json:"workspace,omitempty"`
	SHA256    string       `json:"sha256"` // of the inputs as a whole, in the form of an approval's JSON
}

// Record returns the inputs in the form of the log: bounded, with a digest over all of them.
func (in *Inputs) Record() (*RecordedInputs, error) {
	whole, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r := &RecordedInputs{Files: []InputFile{}, Workspace: in.Workspace, SHA256: HashBytes(whole)}
	left := maxRecorded
	for i, f := range in.Files {
		text, err := json.Marshal(f)
		if err != nil {
			return nil, err
		}
		if left -= len(text) + 1; left < 0 {
			r.More = len(in.Files) - i
			break
		}
		r.Files = append(r.Files, f)
	}
	return r, nil
}
