"""Files that clients upload: the forms that bring them, and where they are stored."""

from adapters.web.files.forms import read_form, read_uploads
from adapters.web.files.uploads import UPLOAD_PREFIX, Upload, UploadStore, build_upload_url, kind_of_file

__all__ = ["UPLOAD_PREFIX", "Upload", "UploadStore", "build_upload_url", "kind_of_file", "read_form", "read_uploads"]
